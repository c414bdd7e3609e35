import { afterAll } from 'vitest';
import { leaveAsFound } from './as-found.ts';
import { endLeftBehind } from './left-behind.ts';
import { meterProcessorTime } from './processor-time.ts';

// Hooks run in the reverse order of this list: the meter is read when all processes have ended.
meterProcessorTime();
leaveAsFound();

// Processes and servers of a failed test end with its file.
afterAll(endLeftBehind);
