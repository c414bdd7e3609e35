import { chmodSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createLog } from '../../src/platform/log.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { leaveBehind, temporaryFolder } from '../../test/setup/left-behind.ts';
import { startPostgresOnPort } from '../../test/setup/postgres-on-port.ts';

/** A separate Postgres of a scenario that can be stopped and restarted on the same port. */
export interface OwnPostgres {
  url: string;
  folder: string;
  /** Stops it without notice to its clients and without a checkpoint, like `pg_ctl stop -m immediate`. */
  stopImmediately(): Promise<void>;
  /** Resolves when the server has ended. */
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
