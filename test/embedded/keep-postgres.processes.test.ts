import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { findBinaries } from '../../src/embedded/server.ts';
import { createLog } from '../../src/platform/log.ts';
import { keepPostgresRunning } from '../../src/start/postgres.ts';
import { PostgresClient } from '../../src/store/postgres-client.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';

const log = createLog('test', 'silent');

/** Starts a supervised server that can be prevented from starting. */
async function startScene() {
  const folder = temporaryFolder();
  chmodSync(folder, 0o777);
  const broken = path.join(folder, 'broken');
  const program = path.join(folder, 'postgres');
  const real = await findBinaries();
  const script = `[ ! -e ${broken} ] || { echo 'FATAL:  broken on purpose'; exit 1; }; exec ${real.postgres} "$@"`;
  writeFileSync(program, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const home = path.join(folder, 'data');
  const postgres = await startEmbeddedPostgres(home, log, { binaries: { ...real, postgres: program } });
  const reasons: string[] = [];
  const stop = keepPostgresRunning(postgres, { log, onHopeless: (reason) => reasons.push(reason) });
  onTestFinished(stop);
  return {
    postgres,
    reasons,
    stop,
    breakIt: () => writeFileSync(broken, ''),
    repair: () => rmSync(broken),
    kill: () =>
      process.kill(
        Number(readFileSync(path.join(home, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]),
        'SIGKILL',
      ),
  };
}

async function answers({ url }: EmbeddedPostgres): Promise<boolean> {
  const client = new PostgresClient({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  await client.query('select').finally(() => client.end());
  return true;
}

test('a server that is killed repeatedly is restarted each time', async () => {
  const { postgres, kill, reasons } = await startScene();
  for (let kills = 0; kills < 4; kills++) {
    kill();
    await postgres.exited;
    await waitUntil(() => answers(postgres), { what: 'the new server' });
  }
  expect(reasons).toEqual([]);
});

test('a server that cannot start for a while is restarted once it can', async () => {
  const { postgres, kill, breakIt, repair, reasons } = await startScene();
  breakIt();
  kill();
  await expect(waitUntil(() => answers(postgres), { what: 'an answer', deadline: 2000 })).rejects.toThrow();
  repair();
  await waitUntil(() => answers(postgres), { what: 'the new server' });
  expect(reasons).toEqual([]);
});

test('a server that cannot start is given up after five attempts, with its own message', async () => {
  const { kill, breakIt, reasons } = await startScene();
  breakIt();
  kill();
  await waitUntil(() => reasons.length > 0, { what: 'the end of all tries' });
  expect(reasons).toEqual([
    'the embedded Postgres exited unexpectedly and could not be restarted in 5 attempts: the embedded Postgres did not start: FATAL:  broken on purpose',
  ]);
});

test('stop waits for a start in progress, and leaves no process running', async () => {
  const { postgres, kill, stop } = await startScene();
  kill();
  await postgres.exited;
  await stop();
  await expect(answers(postgres)).rejects.toThrow(/ENOENT|ECONNREFUSED/);
});
