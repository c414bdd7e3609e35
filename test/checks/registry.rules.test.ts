import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { Readings, StreamNow } from '../../src/checks/readings.ts';
import { checks, findProblems, printedProblem } from '../../src/checks/registry.ts';
import { lanesIn } from '../../src/checks/text.ts';
import { packageRoot } from '../../src/platform/files.ts';
import type { MarkLevel, SeenProcess } from '../../src/store/processes.ts';
import { type CaseRow, machineCases } from './machine-cases.ts';

const one = (name: SeenProcess['name'], change: Partial<SeenProcess> = {}): SeenProcess => ({
  ...{ id: name, name, host: 'w-7', pid: 42, version: '0.1.0', address: null, lanes: [], missing: [] },
  ...{ objects: 0, objectsPerSecond: 0, residentBytes: 1, loopBusy: 0, silentSeconds: 1 },
  ...{ refused: 0, refusedPerSecond: 0, marks: null, held: null },
  ...{ startedAt: new Date(0), seenAt: new Date(0) },
  ...change,
});

const lanesOf = (...waiting: [depth: number, oldestSeconds: number][]) =>
  waiting.map(([depth, oldestSeconds], lane) => ({ lane: `lane-${lane}`, depth, oldestSeconds }));

const at = new Date('2026-01-02T03:04:50.000Z');

const well: Readings = {
  ...{ at, queue: 'redis', lacking: [] },
  lanes: lanesOf([0, 0], [3, 0.2]),
  processes: [one('web'), one('worker'), one('board')],
  postgres: { latency: 2, used: 30, most: 100, isReadOnly: false },
  redis: { latency: 1, used: 10, most: 0, writes: true },
};

/** Id of the workspace `shop`. */
const SHOP = '00000000-0000-7000-8000-00000000000a';

const GB = 1024 ** 3;

const diskWith = (freeBytes: number): Partial<Readings> => ({
  disks: [{ name: 'data', path: '/data', freeBytes, sizeBytes: 100 * GB }],
});

/** A fleet whose web processes have these load limits. */
const markedAs = (...levels: Record<string, MarkLevel>[]): Partial<Readings> => ({
  processes: [...levels.map((marks) => one('web', { marks })), one('worker'), one('board')],
});

const depthOf = (value: number, over: boolean) => ({
  queue_depth: { value, mark: 50_000, unit: 'jobs', over },
});

const bytesOf = (name: string, megabytes: number) => ({
  [name]: { value: megabytes * 1024 ** 2, mark: 64 * 1024 ** 2, unit: 'bytes', over: false },
});

const lossOf = (result: 'empty' | 'behind'): Partial<Readings> => ({
  loss: {
    losses: 1,
    latest: 3,
    found: result,
    acceptedFrom: '2026-01-02T03:00:00Z',
    acceptedUntil: '2026-01-02T03:01:00Z',
  },
});

const newer = (silentSeconds = 1) => one('worker', { version: '0.2.0', silentSeconds });

const stuck = lanesOf([40, 45], [81, 44], [0, 0], [0, 0]);

const stream = (change: Partial<StreamNow>): Partial<Readings> => ({
  streams: [
    {
      ...{
        workspaceId: SHOP,
        workspace: 'shop',
        name: 'crm',
        lag: 400,
        gather: 0,
        failures: 0,
        lastError: null,
        isPaused: false,
      },
      ...{ lost: 0, lostAt: null, ...change },
    },
  ],
});

const troubled = (status: 'error' | 'partial'): Partial<Readings> => ({
  syncs: {
    unfinished: 0,
    troubled: [
      {
        ...{
          workspaceId: SHOP,
          workspace: 'shop',
          integration: 'orders',
          id: 'i',
          status,
          rowsFailed: 7,
          message: 'no table',
        },
        endedAt: '2026-01-02T03:00:00Z',
      },
    ],
  },
});

const held = (since: string) => [0, 1, 2, 3].map((lane) => ({ lane, since }));

const rows: CaseRow[] = [
  ...machineCases,
  ...([
    [
      'Postgres is away',
      { processes: undefined, lacking: [{ name: 'postgres', since: at }] },
      'postgres-away',
      'critical',
      /^Postgres does not answer \(since 2026-01-02 03:04:50 UTC\)\. After one minute, requests are refused with 503\.$/,
    ],
    [
      'Redis is away',
      { lanes: undefined, lacking: [{ name: 'redis', since: at }] },
      'redis-away',
      'critical',
      /^Redis does not answer \(since 2026-01-02 03:04:50 UTC\)\. Requests are refused with 503\.$/,
    ],
    [
      'Redis refused a command',
      { lanes: undefined, lacking: [{ name: 'redis', reason: 'connection refused' }] },
      'redis-away',
      'critical',
      /^Redis does not answer \(connection refused\)\. /,
    ],
    [
      'tables are missing',
      { lacking: [{ name: 'migrations' }] },
      'tables-missing',
      'critical',
      /^Postgres does not have the tables/,
    ],
    [
      'the queue does not answer',
      { queue: 'postgres', lacking: [{ name: 'queue' }] },
      'queue-away',
      'critical',
      /^The queue in Postgres does not answer/,
    ],
    [
      'a producer is not connected',
      { lacking: [{ name: 'producer' }] },
      'producer-away',
      'critical',
      /^This process has no connection/,
    ],
    [
      'Postgres is read-only',
      { postgres: { ...well.postgres!, isReadOnly: true } },
      'postgres-read-only',
      'critical',
      /^Postgres is read-only/,
    ],
    [
      'Postgres refuses writes',
      { rejectsWrites: { reason: 'could not extend file', since: at } },
      'postgres-rejects-writes',
      'critical',
      /^Postgres answers but refuses writes \(since .*\): could not extend file\.$/,
    ],
    [
      'Postgres did not return everything',
      { unread: ['streams', 'syncs'] },
      'readings-incomplete',
      'info',
      /^Not everything could be read\. Postgres did not return: streams, syncs\.$/,
    ],
    ['no web runs', { processes: [one('worker')] }, 'no-web', 'critical', /^No web is running\./],
    [
      'no worker runs',
      { lanes: stuck, processes: [one('web')] },
      'no-worker',
      'critical',
      /^No worker is running\. 121 jobs wait, the oldest for 45 s\.$/,
    ],
    [
      'no worker runs and nothing waits',
      { lanes: lanesOf([0, 0]), processes: [one('web')] },
      'no-worker',
      'critical',
      /^No worker is running\.$/,
    ],
    [
      'the last worker is silent',
      {
        lanes: lanesOf([0, 0]),
        processes: [
          one('web'),
          one('worker', { pid: 43, silentSeconds: 47 }),
          one('worker', { pid: 44, silentSeconds: 90 }),
        ],
      },
      'no-worker',
      'critical',
      /^No worker is running\. The last heartbeat came from worker w-7 \(pid 43\), 47 s ago\.$/,
    ],
    [
      'a process is silent',
      { processes: [...well.processes!, one('worker', { pid: 43, silentSeconds: 47 })] },
      'process-silent',
      'warning',
      /^worker w-7 \(pid 43\) has sent no heartbeat for 47 s\.$/,
    ],
    [
      'a process ends repeatedly',
      { ends: [{ name: 'sync', count: 12, since: at, lastError: 'out of memory' }] },
      'process-ends-repeatedly',
      'critical',
      /^sync ended 12 times in 5 min; last error: out of memory\.$/,
    ],
    [
      'a process lacks Redis',
      { processes: [one('web', { missing: ['redis'] }), one('worker')] },
      'process-lacks',
      'critical',
      /^web w-7 \(pid 42\) cannot reach redis, /,
    ],
    [
      'two releases run',
      { processes: [one('web'), one('worker'), newer()] },
      'releases-differ',
      'info',
      /^2 releases are running: 0\.1\.0 and 0\.2\.0\.$/,
    ],
    [
      'a process is large',
      { processes: [one('web', { residentBytes: 2 * GB }), one('worker')] },
      'process-large',
      'warning',
      /^web w-7 \(pid 42\) uses 2,048 MB of memory \(threshold 1,431 MB\)\.$/,
    ],
    [
      'the disk is full',
      diskWith(GB),
      'disk-filling',
      'critical',
      /^The disk of \/data is almost full: 1 % is free \(1\.0 GB of 100\.0 GB\)\.$/,
    ],
    [
      'the disk fills',
      diskWith(4 * GB),
      'disk-filling',
      'warning',
      /^The disk of \/data is filling: 4 % is free/,
    ],
    [
      'Redis cannot write its file',
      { redis: { ...well.redis!, writes: false } },
      'redis-cannot-write',
      'critical',
      /^Redis could not write its file/,
    ],
    [
      'Redis fills',
      markedAs({ redis_memory: { value: 73, mark: 80, unit: 'percent', over: false } }),
      'redis-filling',
      'warning',
      /^Redis uses 73 % of its maxmemory\. Above 80 %, web refuses requests\.$/,
    ],
    [
      'Redis came back empty',
      lossOf('empty'),
      'queue-lost',
      'critical',
      /^Redis came back empty, .* are lost\.$/,
    ],
    [
      'Redis went back',
      lossOf('behind'),
      'queue-lost',
      'critical',
      /^Redis came back with less than it held: .* are lost\.$/,
    ],
    [
      'connections are used up',
      { postgres: { ...well.postgres!, used: 97 } },
      'postgres-connections',
      'critical',
      /^The connections of Postgres are used up: 97 of 100\.$/,
    ],
    [
      'connections are nearly used up',
      { postgres: { ...well.postgres!, used: 91 } },
      'postgres-connections',
      'warning',
      /^The connections of Postgres are nearly used up/,
    ],
    [
      'Postgres is slow',
      { postgres: { ...well.postgres!, latency: 1200.4 } },
      'store-slow',
      'warning',
      /^Postgres answers in 1,200 ms/,
    ],
    [
      'Redis is slow',
      { redis: { ...well.redis!, latency: 300 } },
      'store-slow',
      'warning',
      /^Redis answers in 300 ms/,
    ],
    [
      'a replica of Redis is behind',
      { redis: { ...well.redis!, lagSeconds: 45 } },
      'replica-behind',
      'warning',
      /^A replica of Redis is 45 s behind/,
    ],
    [
      'a shard is away',
      { lanes: [{ lane: 'lane-0', shard: 1, depth: 0, oldestSeconds: 0, away: true }] },
      'shard-away',
      'critical',
      /^Shard 1 of the lanes does not answer\.$/,
    ],
    [
      'no worker has taken a lane',
      {
        lanes: stuck,
        processes: [
          one('web'),
          one('worker', { lanes: [1], held: held('2026-01-02T03:04:05.000Z').slice(1) }),
        ],
      },
      'lanes-unworked',
      'critical',
      /^No worker has lane 0 although 1 worker runs: 40 jobs wait in lane 0, the oldest for 45 s\.$/,
    ],
    [
      'no worker has an empty lane',
      { processes: [one('web'), one('worker', { held: [{ lane: 1, since: '2026-01-02T03:04:05.000Z' }] })] },
      'lanes-unworked',
      'warning',
      /^No worker has lane 0\.$/,
    ],
    [
      'lanes make no progress',
      { lanes: stuck, drained: 0 },
      'lane-stuck',
      'critical',
      /^Lanes make no progress although 1 worker runs: 121 jobs wait in lanes 0 and 1, the oldest for 45 s\.$/,
    ],
    [
      'the workers drain the queue',
      {
        lanes: stuck,
        drained: 6,
        processes: [one('web'), one('worker', { held: held('2026-01-02T03:04:49.000Z') })],
      },
      'draining',
      'info',
      /^Draining: 121 jobs, about 20 s left\.$/,
    ],
    [
      'the workers are behind',
      {
        lanes: stuck,
        drained: -3,
        processes: [one('web'), one('worker', { lanes: [0, 1], objectsPerSecond: 5400.4 })],
      },
      'draining',
      'warning',
      /^The workers are behind: 121 jobs wait .* They apply 5,400 objects\/s\.$/,
    ],
    [
      'web refuses requests',
      {
        processes: [
          one('web', {
            marks: { queue_depth: { value: 313, mark: 300, unit: 'jobs', over: true } },
            refusedPerSecond: 42,
          }),
          one('worker'),
        ],
      },
      'refuses',
      'critical',
      /^web refuses requests \(queue_depth 313 of 300\): 42 requests\/s get 503\.$/,
    ],
    [
      'Redis is full',
      markedAs({ redis_memory: { value: 92.5, mark: 90, unit: 'percent', over: true } }),
      'refuses',
      'critical',
      /^web refuses requests \(redis_memory 92\.5 % of 90 %\)\.$/,
    ],
    [
      'one of two web processes refuses',
      markedAs(depthOf(10, false), { event_loop_lag: { value: 900, mark: 500, unit: 'ms', over: true } }),
      'refuses',
      'warning',
      /^1 of 2 web processes refuses requests \(event_loop_lag 900 ms of 500 ms\)\.$/,
    ],
    [
      'bodies arrive slowly',
      markedAs(bytesOf('reading_bytes', 63)),
      'nearly-refuses',
      'warning',
      /^web is about to refuse requests \(reading_bytes 63 MB of 64 MB\)\.$/,
    ],
    [
      'small bodies are held back',
      markedAs(bytesOf('small_bodies_bytes', 64)),
      'nearly-refuses',
      'warning',
      /^web is about to refuse requests \(small_bodies_bytes 64 MB/,
    ],
    [
      'web refuses requests for another reason',
      { processes: [one('web', { refusedPerSecond: 12.34 }), one('worker')] },
      'refuses-otherwise',
      'info',
      /^web refuses 12\.3 requests\/s with 429 or 503, although no load limit is exceeded\.$/,
    ],
    [
      'a stream lost changes',
      stream({ lost: 2 }),
      'stream-lost',
      'critical',
      /^The stream crm \(shop\) did not receive 2 transactions/,
    ],
    [
      'a stream fails',
      stream({ failures: 18, lag: 3060, lastError: 'HTTP 500' }),
      'stream-failing',
      'warning',
      /^The stream crm \(shop\) has failed 18 times in a row and is 51 min behind: HTTP 500\.$/,
    ],
    [
      'a stream is behind',
      stream({}),
      'stream-behind',
      'warning',
      /^The stream crm \(shop\) is 6 min 40 s behind, and its destination accepts/,
    ],
    [
      'a sync failed',
      troubled('error'),
      'sync-failed',
      'warning',
      /^The last run of orders \(shop\) ended as error: no table\.$/,
    ],
    [
      'a sync ended as partial',
      troubled('partial'),
      'sync-failed',
      'warning',
      /^The last run of orders \(shop\) ended as partial: 7 rows failed\.$/,
    ],
    [
      'no sync runs',
      { syncs: { unfinished: 2, troubled: [] } },
      'syncs-stand',
      'warning',
      /^No sync is running\. 2 runs of integrations wait\.$/,
    ],
    [
      'an export failed',
      {
        exports: [
          {
            workspaceId: SHOP,
            workspace: 'shop',
            segment: 'buyers',
            lastError: 'no such bucket',
            endedAt: at,
          },
        ],
      },
      'export-failed',
      'warning',
      /^A segment export of buyers \(shop\) failed: no such bucket\.$/,
    ],
    [
      'an import stopped',
      {
        imports: [
          {
            workspaceId: SHOP,
            workspace: 'shop',
            file: 'people.csv',
            rows: 40,
            stoppedAt: new Date(at.getTime() - 7_200_000),
          },
        ],
      },
      'import-stopped',
      'warning',
      /^The import of people\.csv \(shop\) has not continued for 2 h, after row 40\.$/,
    ],
    [
      'dead letters wait',
      { deadLetters: { count: 1, isMore: false, since: at } },
      'dead-letters',
      'warning',
      /^1 dead letter needs attention\.$/,
    ],
  ] as CaseRow[]),
];

const cases = rows.map(([name, change, id, severity, sentence]) => ({
  ...{ name, change, id, severity, sentence },
}));

/** Place that evaluates a check: the fleet, or only a machine. */
const placeOf = (id: string) =>
  checks.find((check) => check.id === id)!.evaluators.includes('fleet') ? 'fleet' : 'machine';

const problemsOf = (change: Partial<Readings>, scope: 'fleet' | 'process' | 'machine' = 'fleet') =>
  findProblems({ ...well, ...change }, scope);

test('a healthy fleet has no problem', () => {
  expect(problemsOf({})).toEqual([]);
});

test.each(cases)(
  'lists one problem with values, impact, first step and link if $name',
  ({ change, id, severity, sentence }) => {
    const problems = problemsOf(change, placeOf(id));
    expect(problems.map((problem) => [problem.id, problem.severity])).toEqual([[id, severity]]);
    const [problem] = problems;
    expect(problem!.sentence).toMatch(sentence);
    expect(problem!.impact).toMatch(/^[A-Z`].*\.$/);
    expect(problem!.firstStep).toMatch(/^[A-Z`].*\.$/);
    expect(problem!.link).toMatch(/^\//);
  },
);

test('a problem that names a workspace has its id and a permit, and JSON has neither', () => {
  const named = cases
    .flatMap(({ change }) => problemsOf(change))
    .filter(({ sentence }) => /shop/.test(sentence));
  expect(new Set(named.map(({ scope }) => scope))).toEqual(new Set(['stream', 'run']));
  for (const problem of named) {
    expect([problem.id, problem.workspaceId]).toEqual([problem.id, SHOP]);
    expect(problem.permit, problem.id).toMatch(/^(?:syncs|segments|company)$/);
    expect(JSON.stringify(printedProblem(problem))).not.toContain(SHOP);
  }
});

test('repeated ends without a recorded error refer to the log and name no cause', () => {
  const [problem] = problemsOf({ ends: [{ name: 'worker', count: 3, since: at, lastError: null }] });
  expect(problem!.sentence).toBe('worker ended 3 times in 5 min; no error was recorded; read its log.');
});

test('only an operator sees the last error of a process', () => {
  const ends = [{ name: 'worker' as const, count: 3, since: at, lastError: 'user-1 is too large' }];
  const [problem] = problemsOf({ ends });
  expect(problem!.sentence).toContain('user-1');
  expect(problem!.publicSentence).toBe('worker ended 3 times in 5 min.');
});

test('every check of the fleet and of a machine has a case, and ids are unique', () => {
  const ids = checks.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  const tried = new Set(cases.map(({ id }) => id));
  const evaluated = checks.filter(({ evaluators }) =>
    evaluators.some((evaluator) => evaluator === 'fleet' || evaluator === 'machine'),
  );
  expect(evaluated.map(({ id }) => id).filter((id) => !tried.has(id))).toEqual([]);
});

test('every check with `find` has a place, and its causes exist', () => {
  const ids = checks.map(({ id }) => id);
  for (const { id, evaluators, find, alert, unless = [] } of checks) {
    expect(evaluators.length, id).toBeGreaterThan(0);
    expect(find !== undefined, id).toBe(evaluators.some((evaluator) => evaluator !== 'prometheus'));
    expect(alert !== undefined, id).toBe(evaluators.includes('prometheus'));
    expect(
      unless.filter((cause) => !ids.includes(cause)),
      id,
    ).toEqual([]);
  }
});

test('a process lists problems of its own work', () => {
  const own = {
    stuck: [{ lane: 3, seconds: 45 }],
    standstill: 12,
    unreadable: [{ lane: 1, version: 9, reads: 8 }],
    overdue: [{ kind: 'sync run', id: 'r', seconds: 400 }],
  };
  expect(problemsOf({ own }, 'process').map(({ id }) => id)).toEqual([
    ...['job-overdue', 'standstill', 'lane-stuck', 'job-unreadable'],
  ]);
});

test('a different number of lanes in the settings is a problem of the machine', () => {
  const spread = { lanes: 4, shards: 1 };
  const [problem] = problemsOf({ spread, settings: { lanes: 1, shards: 1 } }, 'machine');
  expect([problem!.sentence, problem!.firstStep]).toEqual([
    'LANES is 1 here, and the installation has 4.',
    expect.stringContaining('Set LANES=4'),
  ]);
});

test('a table is bloated if its dead rows are many in number and in proportion', () => {
  const idsOf = (liveRows: number, deadRows: number) =>
    problemsOf({ machine: { tables: [{ table: 'ledger', liveRows, deadRows }] } }, 'machine').map(
      ({ id }) => id,
    );
  expect([idsOf(10, 1000), idsOf(10_000_000, 60_000), idsOf(10_000, 60_000)]).toEqual([
    ...[[], [], ['table-bloated']],
  ]);
});

test('the first step for data checksums names pg_checksums and the data folder', () => {
  const off = { data_checksums: 'off', data_directory: '/data' };
  const [problem] = problemsOf(
    { postgres: { ...well.postgres!, version: 160_004, settings: off } },
    'machine',
  );
  expect(problem!.firstStep).toContain('pg_checksums --enable --pgdata=/data, a program of Postgres 16.');
});

test('problems are sorted by severity, and all of them are listed', () => {
  const all = { ...diskWith(4 * GB), ...lossOf('empty'), ...markedAs(depthOf(60_000, true)) };
  const ids = (change: Partial<Readings>) => problemsOf(change).map(({ id }) => id);
  expect(ids({ ...all, deadLetters: { count: 4, isMore: false, since: at } })).toEqual([
    ...['queue-lost', 'refuses', 'disk-filling', 'dead-letters'],
  ]);
});

test('an unreachable store hides the problems that it causes', () => {
  const processes = [one('web', { missing: ['redis'], refusedPerSecond: 9 }), one('worker')];
  const lacking = [{ name: 'redis' as const, since: at }, { name: 'producer' as const }];
  expect(problemsOf({ processes, lacking, lanes: undefined }).map(({ id }) => id)).toEqual(['redis-away']);
});

test('the only sync process that is silent has an impact without other processes', () => {
  const processes = [one('web'), one('worker'), one('sync', { silentSeconds: 47 })];
  const [problem] = problemsOf({ processes }).filter(({ id }) => id === 'process-silent');
  expect(problem!.impact).toMatch(/No other sync process is running\.$/);
});

test('silent processes are not reported as refusing or as running another release', () => {
  const gone = { silentSeconds: 60, marks: depthOf(60_000, true), refusedPerSecond: 5, pid: 43 };
  const processes = [one('web'), one('web', gone), one('worker'), newer(60)];
  expect(problemsOf({ processes }).map(({ id }) => id)).toEqual(['process-silent', 'process-silent']);
});

test('a worker that has just taken a lane is not reported for the age of its jobs', () => {
  const worker = one('worker', { held: held('2026-01-02T03:04:49.000Z') });
  expect(
    problemsOf({ lanes: stuck, drained: 0, processes: [one('web'), worker] }).map(({ id }) => id),
  ).toEqual(['draining']);
});

test('a blocked lane may wait for the newer release while two releases run', () => {
  const processes = [one('web'), one('worker'), newer()];
  const [problem] = problemsOf({ lanes: stuck, drained: 0, processes });
  expect(problem!.firstStep).toMatch(/^Two releases run: /);
});

test('the runbook quotes a console sentence for every fault, or gives a reason why not', () => {
  const rowsOf = (file: string) =>
    [...readFileSync(path.join(packageRoot, file), 'utf8').matchAll(/^\| (\d+) \|(.*)\|$/gm)].map(
      ([, number, rest]) => ({ number: Number(number), reported: rest!.split('|').at(-1)!.trim() }),
    );
  const rows = rowsOf('docs/runbook.md');
  expect(rows).toHaveLength(30);
  const sentences = cases.flatMap(({ change }) => problemsOf(change).map(({ sentence }) => sentence));
  for (const { number, reported } of rows) {
    const quoted = [...reported.matchAll(/“([^”]+)”/g)].map(([, phrase]) => phrase!);
    if (quoted.length === 0) expect(reported, `fault ${number}`).toMatch(/^not shown, because /);
    const unsaid = quoted.filter((phrase) => !sentences.some((sentence) => sentence.includes(phrase)));
    expect(unsaid, `fault ${number}`).toEqual([]);
  }
});

test('Redis is reported as filling above nine tenths of the limit of web, as the alert is', () => {
  const memory = (value: number, over = false) =>
    markedAs({ redis_memory: { value, mark: 80, unit: 'percent', over } });
  const ids = (change: Partial<Readings>) => problemsOf(change).map(({ id }) => id);
  expect([ids(memory(72)), ids(memory(72.1)), ids(memory(81, true))]).toEqual([
    ...[[], ['redis-filling'], ['refuses']],
  ]);
  expect(checks.find(({ id }) => id === 'redis-filling')!.alert).toMatchObject({
    expr: 'max(penstock_high_water_used_ratio{mark="redis_memory"}) > 0.9',
  });
});

test('a queue that waits for less than ten seconds is not a problem', () => {
  expect(problemsOf({ lanes: lanesOf([500, 9]) })).toEqual([]);
});

test('lanes are formatted as ranges and lists', () => {
  expect([[3], [0, 1], [0, 1, 2, 3], [0, 2, 5]].map(lanesIn)).toEqual([
    ...['lane 3', 'lanes 0 and 1', 'lanes 0 to 3', 'lanes 0, 2 and 5'],
  ]);
});
