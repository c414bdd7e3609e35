import { fork } from 'node:child_process';
import path from 'node:path';
import { packageRoot } from '../platform/files.ts';

/** The message that `src/prepare.ts` sends to `npm start`. */
export interface Prepared {
  /** Number of migrations that were applied. */
  migrations: number;
  /** The API key of the first workspace, if this run created it. */
  apiKey?: string | undefined;
}

export interface Failure {
  failure: string;
}

/**
 * Creates the tables and the first workspace in a child process that then ends.
 * @throws {Error} with the reason that the child process sent
 */
export async function runPreparation(env: NodeJS.ProcessEnv): Promise<Prepared> {
  const child = fork(path.join(packageRoot, 'dist/src/prepare.js'), [], {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const prepared = await new Promise<Prepared | Failure>((resolve, reject) => {
    child.once('message', (message) => resolve(message as Prepared | Failure));
    child.once('error', reject);
    child.once('exit', (code, signal) =>
      resolve({ failure: `the preparation of the database ended with ${signal ?? `code ${code}`}` }),
    );
  });
  if ('failure' in prepared) throw new Error(prepared.failure);
  return prepared;
}
