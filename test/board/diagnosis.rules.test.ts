import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { diagnose, type Findings, lanesIn } from '../../src/board/diagnosis.ts';
import { packageRoot } from '../../src/platform/files.ts';
import type { MarkLevel, SeenProcess } from '../../src/store/processes.ts';

const one = (name: SeenProcess['name'], change: Partial<SeenProcess> = {}): SeenProcess => ({
  ...{ id: name, name, host: 'w-7', pid: 42, version: '0.1.0', address: null, lanes: [], missing: [] },
  ...{ objects: 0, objectsPerSecond: 0, residentBytes: 1, loopBusy: 0, silentSeconds: 1 },
  ...{ refused: 0, refusedPerSecond: 0, marks: null, held: null },
  ...{ startedAt: new Date(0), seenAt: new Date(0) },
  ...change,
});

const lanesOf = (...waiting: [depth: number, oldestSeconds: number][]) =>
  waiting.map(([depth, oldestSeconds], lane) => ({ lane: `lane-${lane}`, depth, oldestSeconds }));

const well: Findings = {
  ...{ missing: [], deadLetters: 0, failingSyncs: 0 },
  lanes: lanesOf([0, 0], [3, 0.2]),
  processes: [one('web'), one('worker'), one('board')],
  postgres: { latency: 2, used: 30, most: 100, readOnly: false },
  redis: { latency: 1, used: 10, most: 0, writes: true },
  ...{ disk: undefined, loss: undefined },
};

const GB = 1024 ** 3;

const diskWith = (freeBytes: number): Partial<Findings> => ({
  disk: { name: 'data', path: '/data', freeBytes, sizeBytes: 100 * GB },
});

/** A fleet whose web processes stand so at their marks. */
const markedAs = (...levels: Record<string, MarkLevel>[]): Partial<Findings> => ({
  processes: [...levels.map((marks) => one('web', { marks })), one('worker'), one('board')],
});

const depthOf = (value: number, over: boolean) => ({
  queue_depth: { value, mark: 50_000, unit: 'jobs', over },
});

const bytesOf = (name: string, megabytes: number) => ({
  [name]: { value: megabytes * 1024 ** 2, mark: 64 * 1024 ** 2, unit: 'bytes', over: false },
});

const lossOf = (found: 'empty' | 'behind'): Partial<Findings> => ({
  loss: { losses: 1, latest: 3, found, acceptedFrom: '10:00', acceptedUntil: '10:05' },
});

const newer = (silentSeconds = 1) => one('worker', { version: '0.2.0', silentSeconds });

const stuck = lanesOf([40, 45], [81, 44], [0, 0], [0, 0]);

const cases: [name: string, change: Partial<Findings>, tone: string, sentence: RegExp][] = [
  ['nothing', {}, 'good', /^All is well/],
  ['Postgres away', { missing: ['postgres'] }, 'bad', /^Postgres does not answer/],
  ['Postgres silent', { processes: undefined }, 'bad', /^Postgres does not answer/],
  ['Redis away', { missing: ['redis'], lanes: undefined }, 'bad', /^Redis does not answer/],
  ['tables missing', { missing: ['migrations'] }, 'bad', /^Postgres does not have the tables/],
  ['queue silent', { lanes: undefined }, 'bad', /^The queue in Postgres does not answer/],
  [
    'the only worker frozen',
    { lanes: stuck, processes: [one('web'), one('worker', { silentSeconds: 47 })] },
    'bad',
    /^The only worker w-7 \(pid 42\) has sent no heartbeat for 47 s: 121 jobs wait in lanes 0 and 1, the oldest for 45 s\.$/,
  ],
  [
    'no worker',
    { lanes: stuck, processes: [one('web')] },
    'bad',
    /^No worker runs: 121 jobs wait in lanes 0 and 1, the oldest for 45 s\.$/,
  ],
  [
    'one of two workers frozen',
    { lanes: stuck, processes: [one('web'), one('worker'), one('worker', { pid: 43, silentSeconds: 30 })] },
    'bad',
    /^Worker w-7 \(pid 43\) has sent no heartbeat for 30 s, and 121 jobs wait/,
  ],
  [
    'lanes that stand still under a living worker',
    { lanes: stuck },
    'bad',
    /^Lanes make no progress although 1 worker runs: 121 jobs wait/,
  ],
  [
    'lanes that nobody has taken',
    {
      lanes: stuck,
      processes: [one('web'), one('worker', { held: [{ lane: 1, since: '2026-01-02T03:04:05.000Z' }] })],
    },
    'bad',
    /^No worker has lane 0 although 1 worker runs: 121 jobs wait/,
  ],
  [
    'workers behind',
    { lanes: stuck, processes: [one('web'), one('worker', { lanes: [0, 1], objectsPerSecond: 5400.4 })] },
    'warn',
    /^The workers are behind: 121 jobs wait .* They apply 5,400 objects\/s\.$/,
  ],
  [
    'no web',
    { processes: [one('worker')] },
    'bad',
    /^No web process has sent a heartbeat: requests are not answered\.$/,
  ],
  [
    'a process that lacks Redis',
    { processes: [one('web', { missing: ['redis'] }), one('worker')] },
    'bad',
    /^web w-7 \(pid 42\) cannot reach redis\.$/,
  ],
  [
    'a spare that fell silent',
    { processes: [one('web'), one('worker'), one('worker', { silentSeconds: 120 })] },
    'warn',
    /^worker w-7 \(pid 42\) has sent no heartbeat for 2 min; other processes do its work\.$/,
  ],
  [
    'a full disk',
    { ...diskWith(GB / 10), missing: ['postgres'] },
    'bad',
    /^The disk of DATA_DIR is full: 0\.1 GB of 100\.0 GB are free\.$/,
  ],
  [
    'a disk that fills',
    diskWith(4 * GB),
    'warn',
    /^The disk of DATA_DIR is nearly full: 4\.0 GB of 100\.0 GB/,
  ],
  [
    'Postgres that only reads',
    { postgres: { latency: 2, used: 1, most: 100, readOnly: true } },
    'bad',
    /^Postgres is read-only: /,
  ],
  [
    'Postgres that takes no rows',
    { processes: (['web', 'worker', 'board'] as const).map((name) => one(name, { silentSeconds: 40 })) },
    'bad',
    /^Postgres is reachable but rejects writes \(last heartbeat written 40 s ago\)\.$/,
  ],
  [
    'Redis that cannot write its file',
    { redis: { latency: 1, used: 10, most: 0, writes: false } },
    'bad',
    /^Redis could not write its file: /,
  ],
  [
    'too much that waits',
    markedAs(depthOf(60_000, true)),
    'bad',
    /^Web refuses requests with 503: queue_depth is 60,000 jobs \(limit 50,000 jobs\)\.$/,
  ],
  [
    'a full Redis',
    markedAs({ redis_memory: { value: 92.5, mark: 90, unit: 'percent', over: true } }),
    'bad',
    /^Web refuses requests with 503: redis_memory is 92\.5 % \(limit 90 %\)\.$/,
  ],
  [
    'one of two web processes that refuses',
    markedAs(depthOf(10, false), { event_loop_lag: { value: 900, mark: 500, unit: 'ms', over: true } }),
    'warn',
    /^1 of 2 web processes refuses requests with 503: event_loop_lag is 900 ms \(limit 500 ms\)\.$/,
  ],
  [
    'bodies that come slowly',
    markedAs(bytesOf('reading_bytes', 63)),
    'warn',
    /^Web is about to refuse requests: reading_bytes is 63 MB \(limit 64 MB\)\.$/,
  ],
  [
    'small bodies that are held back',
    markedAs(bytesOf('small_bodies_bytes', 64)),
    'warn',
    /^Web is about to refuse requests: small_bodies_bytes is 64 MB/,
  ],
  [
    'requests that are refused for no mark',
    { processes: [one('web', { refusedPerSecond: 12.34 }), one('worker')] },
    'warn',
    /^Web refuses 12\.3 requests\/s with 429 or 503, although no load limit is exceeded\.$/,
  ],
  [
    'connections that are used up',
    { postgres: { latency: 2, used: 97, most: 100, readOnly: false } },
    'bad',
    /^The connections of Postgres are used up: 97 of 100\.$/,
  ],
  [
    'connections that are nearly used up',
    { postgres: { latency: 2, used: 91, most: 100, readOnly: false } },
    'warn',
    /^The connections of Postgres are nearly used up: 91 of 100\.$/,
  ],
  [
    'an empty Redis',
    lossOf('empty'),
    'bad',
    /^Redis came back empty, .* objects that were accepted from 10:00 to 10:05 and not applied are lost\.$/,
  ],
  [
    'a Redis that went back',
    lossOf('behind'),
    'bad',
    /^Redis came back with less than it held: .* is lost\.$/,
  ],
  [
    'a slow Postgres',
    { postgres: { latency: 1200.4, used: 1, most: 100, readOnly: false } },
    'warn',
    /^Postgres answers in 1,200 ms, /,
  ],
  [
    'a slow Redis',
    { redis: { latency: 300, used: 1, most: 0, writes: true } },
    'warn',
    /^Redis answers in 300 ms, /,
  ],
  [
    'a replica that is behind',
    { redis: { latency: 1, used: 1, most: 0, writes: true, lagSeconds: 45 } },
    'warn',
    /^A replica of Redis is 45 s behind: /,
  ],
  [
    'a large process',
    { processes: [one('web', { residentBytes: 2 * GB }), one('worker')] },
    'warn',
    /^web w-7 \(pid 42\) has 2,048 MB of memory\.$/,
  ],
  [
    'two releases',
    { processes: [one('web'), one('worker'), newer()] },
    'warn',
    /^2 releases are running: 0\.1\.0 and 0\.2\.0\.$/,
  ],
  ['dead letters', { deadLetters: 1, failingSyncs: 2 }, 'warn', /^1 dead letter waits for an operator/],
  ['failed syncs', { failingSyncs: 2 }, 'warn', /^The last run of 2 integrations ended in an error/],
];

test.each(cases)('of %s the first page says so in a sentence, with what to do', (...given) => {
  const [, change, tone, sentence] = given;
  const verdict = diagnose({ ...well, ...change });
  expect(verdict.sentence).toMatch(sentence);
  expect(verdict.tone).toBe(tone);
  if (tone !== 'good') expect(verdict.advice).toMatch(/^[A-Z].*\.$/);
});

test('the gravest cause is the one that is told', () => {
  const all = { deadLetters: 5, failingSyncs: 1, lanes: stuck, processes: [one('web')] };
  expect(diagnose({ ...well, ...all }).sentence).toMatch(/^No worker runs/);
  expect(diagnose({ ...well, ...all, missing: ['redis'] }).sentence).toMatch(/^Redis/);
});

test('what stops now comes before what is lost already, and both before what only may stop', () => {
  const all = { ...diskWith(4 * GB), ...lossOf('empty'), ...markedAs(depthOf(60_000, true)) };
  expect(diagnose({ ...well, ...all }).sentence).toMatch(/^Web refuses requests with 503/);
  expect(diagnose({ ...well, ...all, lanes: stuck, processes: [one('web')] }).sentence).toMatch(/^No worker/);
  expect(diagnose({ ...well, ...all, processes: well.processes }).sentence).toMatch(/^Redis came back empty/);
  const filling = { ...all, loss: undefined, processes: well.processes, deadLetters: 4 };
  expect(diagnose({ ...well, ...filling }).sentence).toMatch(/^The disk of DATA_DIR is nearly full/);
});

test('processes that are gone neither refuse nor are of another release', () => {
  const gone = { silentSeconds: 60, marks: depthOf(60_000, true), refusedPerSecond: 5 };
  const processes = [one('web'), one('web', gone), one('worker'), newer(60)];
  expect(diagnose({ ...well, processes }).sentence).toMatch(/^web w-7 .* has sent no heartbeat for 1 min/);
});

test('a lane that stands while two releases run may wait for the later one', () => {
  const processes = [one('web'), one('worker'), newer()];
  expect(diagnose({ ...well, lanes: stuck, processes }).advice).toMatch(/^Two releases run: /);
});

test('the runbook quotes a sentence of the console for every fault, or says why there is none', () => {
  const rowsOf = (file: string) =>
    [...readFileSync(path.join(packageRoot, file), 'utf8').matchAll(/^\| (\d+) \|(.*)\|$/gm)].map(
      ([, number, rest]) => ({ number: Number(number), told: rest!.split('|').at(-1)!.trim() }),
    );
  const rows = rowsOf('docs/runbook.md');
  expect(rows).toHaveLength(30);
  const sentences = cases.map(([, change]) => diagnose({ ...well, ...change }).sentence);
  for (const { number, told } of rows) {
    const quoted = [...told.matchAll(/“([^”]+)”/g)].map(([, phrase]) => phrase!);
    if (quoted.length === 0) expect(told, `fault ${number}`).toMatch(/^not shown, because /);
    const unsaid = quoted.filter((phrase) => !sentences.some((sentence) => sentence.includes(phrase)));
    expect(unsaid, `fault ${number}`).toEqual([]);
  }
});

test('what waits for a moment is nothing to worry about', () => {
  expect(diagnose({ ...well, lanes: lanesOf([500, 9]) }).tone).toBe('good');
});

test('lanes are told as a person would', () => {
  expect([[3], [0, 1], [0, 1, 2, 3], [0, 2, 5]].map(lanesIn)).toEqual([
    ...['lane 3', 'lanes 0 and 1', 'lanes 0 to 3', 'lanes 0, 2 and 5'],
  ]);
});
