import { killedWorkers } from '../../tools/chaos/scenarios/01-killed-workers.ts';
import { killedEdges } from '../../tools/chaos/scenarios/02-killed-edges.ts';
import { rollingRestart } from '../../tools/chaos/scenarios/03-rolling-restart.ts';
import { listHistories } from '../../tools/chaos/scenarios/40-list-histories.ts';
import { shortForms } from './short-form.ts';

// Penstock processes are killed, frozen and asked to stop.
shortForms('redis', [killedWorkers, killedEdges, listHistories, rollingRestart]);
shortForms('postgres', [killedWorkers, killedEdges]);
