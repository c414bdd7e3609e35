import { expect, test } from 'vitest';
import { diagnose, type Findings, lanesIn } from '../../src/board/diagnosis.ts';
import type { SeenProcess } from '../../src/store/processes.ts';

const one = (name: SeenProcess['name'], change: Partial<SeenProcess> = {}): SeenProcess => ({
  ...{ id: name, name, host: 'w-7', pid: 42, version: '0.1.0', address: null, lanes: [], missing: [] },
  ...{ objects: 0, objectsPerSecond: 0, residentBytes: 1, loopBusy: 0, silentSeconds: 1 },
  ...{ refused: 0, refusedPerSecond: 0, marks: null },
  ...{ startedAt: new Date(0), seenAt: new Date(0) },
  ...change,
});

const lanesOf = (...waiting: [depth: number, oldestSeconds: number][]) =>
  waiting.map(([depth, oldestSeconds], lane) => ({ lane: `lane-${lane}`, depth, oldestSeconds }));

const well: Findings = {
  ...{ missing: [], deadLetters: 0, failingSyncs: 0 },
  lanes: lanesOf([0, 0], [3, 0.2]),
  processes: [one('web'), one('worker'), one('board')],
};

const stuck = lanesOf([40, 45], [81, 44], [0, 0], [0, 0]);

const cases: [name: string, change: Partial<Findings>, tone: string, sentence: RegExp][] = [
  ['nothing', {}, 'good', /^All is well/],
  ['Postgres away', { missing: ['postgres'] }, 'bad', /^Postgres does not answer/],
  ['Postgres silent', { processes: undefined }, 'bad', /^Postgres does not answer/],
  ['Redis away', { missing: ['redis'], lanes: undefined }, 'bad', /^Redis does not answer/],
  ['tables missing', { missing: ['migrations'] }, 'bad', /^Postgres lacks tables/],
  ['queue silent', { lanes: undefined }, 'bad', /^The queue in Postgres does not answer/],
  [
    'the only worker frozen',
    { lanes: stuck, processes: [one('web'), one('worker', { silentSeconds: 47 })] },
    'bad',
    /^The only worker w-7 \(pid 42\) has been silent for 47 s: 121 jobs wait in lanes 0 and 1, the oldest for 45 s\.$/,
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
    /^Worker w-7 \(pid 43\) has been silent for 30 s, and 121 jobs wait/,
  ],
  [
    'lanes that stand still under a living worker',
    { lanes: stuck },
    'bad',
    /^Lanes stand still though 1 worker runs: 121 jobs wait/,
  ],
  [
    'workers behind',
    { lanes: stuck, processes: [one('web'), one('worker', { lanes: [0, 1], objectsPerSecond: 5400.4 })] },
    'warn',
    /^The workers are behind: 121 jobs wait .* They apply 5,400 objects\/s\.$/,
  ],
  ['no web', { processes: [one('worker')] }, 'bad', /^No web process is heard: nothing is accepted\.$/],
  [
    'a process that lacks Redis',
    { processes: [one('web', { missing: ['redis'] }), one('worker')] },
    'bad',
    /^web w-7 \(pid 42\) does not reach redis\.$/,
  ],
  [
    'a spare that fell silent',
    { processes: [one('web'), one('worker'), one('worker', { silentSeconds: 120 })] },
    'warn',
    /^worker w-7 \(pid 42\) has been silent for 2 min; others do its work\.$/,
  ],
  ['dead letters', { deadLetters: 1, failingSyncs: 2 }, 'warn', /^1 dead letter waits for a person/],
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

test('what waits for a moment is nothing to worry about', () => {
  expect(diagnose({ ...well, lanes: lanesOf([500, 9]) }).tone).toBe('good');
});

test('lanes are told as a person would', () => {
  expect([[3], [0, 1], [0, 1, 2, 3], [0, 2, 5]].map(lanesIn)).toEqual([
    ...['lane 3', 'lanes 0 and 1', 'lanes 0 to 3', 'lanes 0, 2 and 5'],
  ]);
});
