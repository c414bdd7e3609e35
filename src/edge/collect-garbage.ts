import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

let gc: (() => void) | undefined;

/** Gives back what buffers and strings take that nobody needs any more: all of them, while the event loop waits. */
export function collectGarbage(): void {
  gc ??= exposed();
  gc();
}

function exposed(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc');
}
