import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createLog } from '../../src/platform/log.ts';
import { leaveBehind, temporaryFolder } from '../setup/left-behind.ts';
import { startPostgresOnPort } from '../setup/postgres-on-port.ts';

export interface TestServer {
  url: string;
  /** Its data folder. */
  PGDATA: string;
  stop(): Promise<void>;
}

/**
 * A server of Postgres with an empty database, that any installation could have; on what `prepare` has put into its
 * place, if that is told.
 * @param programs the folder of its programs; those from npm unless told
 */
export async function startPostgresServer(
  programs: string | undefined,
  home = temporaryFolder('penstock-server-'),
): Promise<TestServer> {
  const binaries = programs && {
    postgres: path.join(programs, 'postgres'),
    initdb: withoutBuiltInLocales(path.join(programs, 'initdb')),
  };
  const server = await startPostgresOnPort(home, createLog('test', 'warn'), binaries || undefined);
  let running = true;
  const stop = async () => {
    if (running) await server.stop();
    running = false;
  };
  leaveBehind(stop);
  return {
    url: server.url,
    PGDATA: path.join(home, 'postgres'),
    stop,
  };
}

/** Where the folder of a server is put that `startPostgresServer` is to start on, with the password of another. */
export function homeWithPasswordOf({ PGDATA }: TestServer): string {
  const home = temporaryFolder('penstock-server-');
  execFileSync('cp', ['-a', path.join(path.dirname(PGDATA), 'password'), home]);
  return home;
}

/** Only Postgres 17 and newer know the locale that the embedded one is made with. */
function withoutBuiltInLocales(initdb: string): string {
  const file = path.join(temporaryFolder('penstock-initdb-'), 'initdb');
  writeFileSync(
    file,
    `#!/bin/sh
for word; do shift; case $word in --*locale*) ;; *) set -- "$@" "$word" ;; esac; done
exec '${initdb}' --locale=C "$@"
`,
  );
  chmodSync(file, 0o755);
  return file;
}
