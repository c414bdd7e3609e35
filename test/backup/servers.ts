import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createLog } from '../../src/platform/log.ts';
import { leaveBehind, temporaryFolder } from '../setup/left-behind.ts';
import { startPostgresOnPort } from '../setup/postgres-on-port.ts';

export interface TestServer {
  url: string;
  /** The data folder. */
  PGDATA: string;
  stop(): Promise<void>;
}

/**
 * Starts a Postgres server with an empty database, like the one of any installation, or on data that
 * `prepare` has put into
 * its folder.
 * @param programs folder of its programs; by default the programs from npm
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

/** Returns a folder for a server that `startPostgresServer` starts, with the password of another server. */
export function homeWithPasswordOf({ PGDATA }: TestServer): string {
  const home = temporaryFolder('penstock-server-');
  execFileSync('cp', ['-a', path.join(path.dirname(PGDATA), 'password'), home]);
  return home;
}

/** Returns an initdb with locale C: only Postgres 17 and newer know the locale of the embedded one. */
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
