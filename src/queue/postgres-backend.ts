import { createPostgresBackend } from 'bullmq';

/** What BullMQ's classes keep of a first look at their tables; it is `private` there. */
interface Starting {
  waitUntilReady(): Promise<void>;
  readyPromise: Promise<void> | undefined;
}

/**
 * BullMQ's Postgres backend, which remembers that its first look at its tables failed for as long as it lives: a lane
 * that is opened at the moment at which Postgres goes away would never work again. Here a failed look is forgotten, and
 * the next call looks again.
 */
export const createPatientBackend: typeof createPostgresBackend = (...given) => {
  const backend = createPostgresBackend(...given);
  const { connection } = backend as unknown as { connection: Starting };
  for (const part of [backend as unknown as Starting, connection]) {
    const wait = part.waitUntilReady.bind(part);
    part.waitUntilReady = () => {
      const ready = wait();
      ready.catch(() => {
        part.readyPromise = undefined;
      });
      return ready;
    };
  }
  return backend;
};
