import { chmodSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createLog } from '../../src/platform/log.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { leaveBehind, temporaryFolder } from '../../test/setup/left-behind.ts';
import { startPostgresOnPort } from '../../test/setup/postgres-on-port.ts';

/** A Postgres of a scenario's own, which may be stopped and started again on the same port. */
export interface OwnPostgres {
  url: string;
  folder: string;
  /** Without a word to its clients and without a checkpoint, as `pg_ctl stop -m immediate` does. */
  stopImmediately(): Promise<void>;
  /** Resolves when it has ended by itself, or at once if it has. */
  exited(): Promise<unknown>;
  startAgain(): Promise<void>;
  stop(): Promise<void>;
}

export async function startOwnPostgres(
  folder = temporaryFolder('penstock-chaos-postgres-'),
): Promise<OwnPostgres> {
  chmodSync(folder, 0o755);
  const home = path.join(folder, 'data');
  const log = createLog('test', 'silent');
  let server = await startPostgresOnPort(home, log);
  await migrate(server.url);
  leaveBehind(() => server.stop());
  return {
    url: server.url,
    folder,
    async stopImmediately() {
      const pid = Number(readFileSync(path.join(home, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]);
      process.kill(pid, 'SIGQUIT');
      await server.exited;
      await server.stop();
    },
    exited: () => server.exited,
    async startAgain() {
      await server.stop();
      server = await startPostgresOnPort(home, log);
    },
    stop: () => server.stop(),
  };
}
