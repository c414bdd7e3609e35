import { afterAll } from 'vitest';
import { leaveAsFound } from './as-found.ts';
import { endLeftBehind } from './left-behind.ts';
import { meterProcessorTime } from './processor-time.ts';

// Hooks run in the reverse order of this list: the meter is read when all has ended.
meterProcessorTime();
leaveAsFound();

// What a failed test left behind ends with its file.
afterAll(endLeftBehind);
