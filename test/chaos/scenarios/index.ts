import type { Scenario } from '../scenario.ts';
import { killedWorkers } from './01-killed-workers.ts';

/** In the order of the list of faults. */
export const scenarios: Scenario[] = [killedWorkers];
