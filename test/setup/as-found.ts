import { afterAll, expect } from 'vitest';

/** State that every test file has to restore, because the next file runs in the same process. */
function state() {
  return {
    environment: { ...process.env },
    folder: process.cwd(),
    clock: [Date, Date.now, setTimeout, setInterval, setImmediate, performance.now],
    streams: [process.stdout.write, process.stderr.write, fetch],
    listeners: ['SIGTERM', 'SIGINT', 'SIGHUP', 'disconnect', 'uncaughtException', 'unhandledRejection'].map(
      (event) => `${event}: ${process.listenerCount(event)}`,
    ),
    prototypes: [Object, Array, Function, String, Promise].map(
      ({ prototype }) => Object.getOwnPropertyNames(prototype).length,
    ),
  };
}

/**
 * Files of one tier share a process: a file that leaves it changed fails itself, so that later files do not.
 */
export function leaveAsFound(): void {
  const result = state();
  afterAll(() => expect(state(), 'what the file leaves changed behind').toEqual(result));
}
