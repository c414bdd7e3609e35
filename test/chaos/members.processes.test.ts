import { killedWorkers } from '../../tools/chaos/scenarios/01-killed-workers.ts';
import { killedEdges } from '../../tools/chaos/scenarios/02-killed-edges.ts';
import { rollingRestart } from '../../tools/chaos/scenarios/03-rolling-restart.ts';
import { shortForm } from './short-form.ts';

// Processes of ours are killed, frozen and asked to end.
shortForm(killedWorkers);
shortForm(killedEdges);
shortForm(rollingRestart, ['redis']);
