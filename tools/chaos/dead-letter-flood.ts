import { execFile } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { packageRoot } from '../../src/platform/files.ts';
import { createClient } from '../../test/guarantees/keep-alive-client.ts';
import { type Backend, backends, startFleetOn } from '../../test/setup/fleet.ts';
import { endLeftBehind } from '../../test/setup/left-behind.ts';
import { leasePort } from '../../test/setup/ports.ts';
import { startProcess, type TestProcess } from '../../test/setup/processes.ts';
import { runCommand } from '../../test/setup/run-command.ts';
import { waitUntil } from '../../test/setup/wait-until.ts';
import { createWorkspace } from '../../test/setup/workspace.ts';
import { residentMegabytes } from '../resident-megabytes.ts';
import { startOwnPostgres } from './own-postgres.ts';
import { refusePoison, takePoison } from './poison.ts';

// Creates a large number of dead letters with one web, one worker and one console:
//   npm run build:tools && node dist/tools/chaos/dead-letter-flood.js redis 100000 20000
// The first number is the total of dead letters. The second is the number that goes through web, the queue
// and a worker, where Postgres refuses each of them. The others are inserted into the table.

const PER_REQUEST = 75;
const TIME = '2026-01-02T03:04:05.000Z';
/** Number of dead letters that are replayed at the end. */
const REPLAYED = 5000;
const PASSWORD = 'correct horse battery';
const run = promisify(execFile);

const print = (what: string, value: number | string, unit = '') =>
  process.stdout.write(
    `${what.padEnd(58)} ${typeof value === 'number' ? Math.round(value) : value} ${unit}\n`,
  );

/** Returns megabytes. */
const memoryOf = ({ pid }: TestProcess): number => residentMegabytes(pid) ?? Number.NaN;

async function timed<Result>(work: () => Promise<Result>): Promise<[milliseconds: number, Result]> {
  const from = performance.now();
  const result = await work();
  return [performance.now() - from, result];
}

async function main(): Promise<void> {
  const [backend = 'postgres', all = '100000', sent = '20000'] = process.argv.slice(2);
  if (!backends.includes(backend as Backend))
    throw new Error(`the first word is one of ${backends.join(', ')}`);
  const [deadLetters, throughQueue] = [Number(all), Number(sent)];
  const postgres = await startOwnPostgres();
  const fleet = await startFleetOn(postgres.url, backend as Backend, { edges: 1, workers: 1 });
  const boardPort = await leasePort();
  const board = startProcess('dist/src/board.js', {
    ...fleet.env,
    ...{ BOARD_PORT: String(boardPort), BOARD_USER: 'admin', BOARD_PASSWORD: PASSWORD },
  });
  const [edge, worker] = [fleet.edges[0]!, fleet.workers[0]!];
  await refusePoison(fleet.pool);
  const other = await createWorkspace(fleet.pool, 'bystander');
  const count = async (state = 'waiting') =>
    (await fleet.pool.query('select count(*)::integer as count from dead_letters where state = $1', [state]))
      .rows[0].count as number;

  const peak = { worker: memoryOf(worker), board: 0 };
  print('worker at rest', peak.worker, 'MB');
  const latencies: number[] = [];
  let flooding = true;

  /**
   * Measures the time from a request until its event can be read, for a workspace that is not part of the
   * burst.
   */
  async function bystand(): Promise<void> {
    const client = createClient(other.key);
    for (let number = 0; flooding; number++) {
      const name = `seen-${number}`;
      const [milliseconds] = await timed(async () => {
        await client.post(edge.port, '/users/track', {
          events: [{ external_id: 'somebody', name, time: TIME }],
        });
        const isApplied = async () =>
          (
            await fleet.pool.query('select from event_summaries where workspace_id = $1 and name = $2', [
              other.id,
              name,
            ])
          ).rowCount === 1;
        await waitUntil(isApplied, { what: 'the event of a bystander', deadline: 300_000 });
      });
      latencies.push(milliseconds);
      await sleep(100);
    }
    client.close();
  }
  async function watch(): Promise<void> {
    for (; flooding; await sleep(250)) {
      peak.worker = Math.max(peak.worker, memoryOf(worker));
      peak.board = Math.max(peak.board, memoryOf(board));
    }
  }
  const background = Promise.all([bystand(), watch()]);

  const [milliseconds] = await timed(async () => {
    const client = createClient(fleet.workspace.key);
    for (let done = 0; done < throughQueue; done += PER_REQUEST) {
      const events = Array.from({ length: PER_REQUEST }, (_, index) => ({
        ...{ external_id: `user-${done + index}`, name: 'poison', time: TIME },
      }));
      const { status } = await client.post(edge.port, '/users/track', { events });
      if (status === 503) {
        done -= PER_REQUEST;
        await sleep(250);
      }
    }
    client.close();
    const wanted = Math.ceil(throughQueue / PER_REQUEST) * PER_REQUEST;
    await waitUntil(async () => (await count()) >= wanted, { what: 'the dead letters', deadline: 500_000 });
  });
  print(`${await count()} dead letters through the queue`, milliseconds / 1000, 's');
  flooding = false;
  await background;
  latencies.sort((one, next) => one - next);
  print(`a bystander's event, ${latencies.length} of them: median`, latencies[latencies.length >> 1]!, 'ms');
  print('  longest', latencies.at(-1)!, 'ms');

  await fleet.pool.query(
    `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, identifiers)
     select gen.id, sample.workspace_id, sample.request_id, sample.kind, sample.job_name,
       jsonb_set(sample.object::jsonb, '{id}', to_jsonb(gen.id))::json, sample.reason, sample.identifiers
     from (select * from dead_letters limit 1) as sample
     cross join lateral (
       select overlay(gen_random_uuid()::text placing '019aaaaa-0000-7' from 1 for 15)::uuid as id
       from generate_series(1, $1)
     ) as gen`,
    [Math.max(0, deadLetters - (await count()))],
  );
  print('dead letters in the table', await count());
  // Wait for three sweeps.
  const from = performance.now();
  while (performance.now() - from < 16_000) {
    peak.worker = Math.max(peak.worker, memoryOf(worker));
    await sleep(250);
  }
  print('worker, most', peak.worker, 'MB');

  const url = `http://127.0.0.1:${boardPort}`;
  const signIn = await fetch(`${url}/sign-in`, {
    ...{ method: 'POST', redirect: 'manual', headers: { origin: url } },
    body: new URLSearchParams({ user: 'admin', password: PASSWORD }),
  });
  const cookie = signIn.headers.getSetCookie()[0]!.split(';')[0]!;
  const readPage = async (query: string) => {
    const [took, body] = await timed(async () => {
      const answer = await fetch(`${url}/queues/api/queues?activeQueue=dead-letters&${query}`, {
        headers: { cookie },
      });
      return { status: answer.status, text: await answer.text() };
    });
    const { queues } = JSON.parse(body.text);
    const shown = queues.find(({ name }: { name: string }) => name === 'dead-letters');
    print(
      `dashboard, ${query}`,
      took,
      `ms, ${body.text.length} characters, ${shown.jobs.length} of ${shown.counts.failed}`,
    );
    peak.board = Math.max(peak.board, memoryOf(board));
  };
  await readPage('status=failed&page=1&jobsPerPage=10');
  await readPage('status=failed&page=100&jobsPerPage=10');
  await readPage('status=failed&page=1&jobsPerPage=1000000');
  print('board, most', peak.board, 'MB');

  const cli = async (...words: string[]) => {
    const [took, { stdout }] = await timed(() =>
      run(process.execPath, [path.join(packageRoot, 'dist/src/cli.js'), ...words], {
        env: { ...process.env, ...fleet.env },
        maxBuffer: 2 ** 28,
      }),
    );
    print(`penstock ${words.join(' ').slice(0, 50)}`, took, `ms, ${stdout.split('\n').length} lines`);
    return stdout;
  };
  await cli('dead-letters', 'list');
  await cli('dead-letters', 'list', '--state', 'waiting', '--limit', '1000', '--json');
  await takePoison(fleet.pool);
  const { rows: chosen } = await fleet.pool.query('select id from dead_letters order by id limit $1', [
    REPLAYED,
  ]);
  process.stdout.write(await cli('dead-letters', 'replay', ...chosen.map(({ id }) => id)));
  const [drained] = await timed(() =>
    waitUntil(async () => (await count('replayed')) >= chosen.length, {
      what: 'the replays',
      deadline: 500_000,
    }),
  );
  print('until they had taken effect, after that', drained / 1000, 's');
  const { rows } = await fleet.pool.query('select count(*)::integer as count from events where name = $1', [
    'poison',
  ]);
  print('events of them in the store', rows[0].count);
  print('worker, after all', memoryOf(worker), 'MB');
  board.kill('SIGKILL');
  await fleet.stop();
  await endLeftBehind();
}

await runCommand(main);
