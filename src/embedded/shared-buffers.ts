import { totalmem } from 'node:os';

const MEGABYTE = 1_048_576;

/** Part of the memory, and megabytes at least and at most: the rest of the machine is everybody else's. */
const SHARE = 1 / 8;
const LEAST = 128;
const MOST = 2048;

/**
 * What Postgres keeps pages in, as its setting `shared_buffers` has it. Memory is taken only as pages come.
 *
 * @param memory bytes; without it, those of this machine, or of the container that this process is in
 */
export function sharedBuffers(memory = available()): string {
  const megabytes = Math.floor((memory * SHARE) / MEGABYTE);
  return `${Math.min(Math.max(megabytes, LEAST), MOST)}MB`;
}

function available(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}
