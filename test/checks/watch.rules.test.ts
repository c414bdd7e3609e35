import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import type { Problem } from '../../src/checks/check.ts';
import type { Readings } from '../../src/checks/readings.ts';
import { openProblems, printedProblem } from '../../src/checks/registry.ts';
import { ProblemWatch } from '../../src/checks/watch.ts';
import { pollOnce } from '../../src/platform/poll.ts';

const problem = (change: Partial<Problem> = {}): Problem => ({
  ...{ id: 'no-worker', group: 'processes', severity: 'critical', scope: 'installation', subject: null },
  ...{ workspaceId: null, permit: 'operator', sentence: 'No worker is running.', impact: '', firstStep: '' },
  ...{ publicSentence: 'No worker is running.', link: '/#processes', since: undefined },
  ...change,
});

const web = { id: 'a', name: 'web', silentSeconds: 1 };

/** Creates a watch of process `a`. Each run sees the current state of `fleet`, and `now` is its clock. */
function createWatch(
  fleet: Partial<Readings> & { problems: Problem[]; reports?: unknown[] },
  isOutage = false,
) {
  const lines: object[] = [];
  let readings = 0;
  const write = (level: string) => (fields: object, text: string) =>
    void lines.push({ level, text, ...fields });
  const watch = new ProblemWatch({
    self: { name: 'web', id: 'a' },
    async read() {
      readings++;
      return { ...{ at: new Date(), queue: 'redis', lacking: [], processes: [web] }, ...fleet } as never;
    },
    readReports: async () => fleet.reports ?? [],
    isOutage: () => isOutage,
    log: { warn: write('warn') as never, info: write('info') as never },
  });
  onTestFinished(watch.stop.bind(watch));
  return { watch, lines, readings: () => readings };
}

function passMinute() {
  const before = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => before() + 61_000);
}

afterEach(() => void vi.restoreAllMocks());

const began = expect.objectContaining({
  ...{ level: 'warn', text: 'problem began', check: 'no-worker', problem: 'No worker is running.' },
});
const ended = expect.objectContaining({ level: 'info', text: 'problem ended', check: 'no-worker' });

test('a problem is listed and logged when a second reading has it, and its end is logged', async () => {
  const fleet = { problems: [problem()] };
  const { watch, lines } = createWatch(fleet);
  const first = watch.runOnce();
  await Promise.resolve();
  expect(watch.problems()).toEqual([]);
  await first;
  await watch.runOnce();
  expect(watch.problems()).toEqual([problem()]);
  expect(lines).toEqual([began]);
  fleet.problems = [];
  await watch.runOnce();
  expect(watch.problems()).toEqual([]);
  expect(lines).toEqual([began, ended]);
});

test('a problem of a single reading is not listed or logged', async () => {
  const fleet = { problems: [problem()] };
  const { watch, lines } = createWatch(fleet);
  const run = watch.runOnce();
  fleet.problems = [];
  await run;
  await watch.runOnce();
  expect([watch.problems(), lines]).toEqual([[], []]);
});

test('one reading is sufficient during an outage that the process has confirmed', async () => {
  const { watch, lines } = createWatch({ problems: [problem()] }, true);
  await watch.runOnce();
  expect(lines).toEqual([began]);
});

test('one reading is sufficient if a process reports that Postgres refuses its writes', async () => {
  const refused = { ...problem(), id: 'postgres-rejects-writes' };
  const { watch, lines, readings } = createWatch({ problems: [refused] });
  await watch.runOnce();
  expect([lines.length, readings()]).toEqual([1, 1]);
});

test('a refused write does not confirm another problem', async () => {
  const refused = { ...problem(), id: 'postgres-rejects-writes' };
  const fleet = { problems: [refused, problem()] };
  const { watch, lines } = createWatch(fleet);
  const run = watch.runOnce();
  fleet.problems = [refused];
  await run;
  expect(lines).toEqual([expect.objectContaining({ check: 'postgres-rejects-writes' })]);
});

test('the problems are read when the reports of processes have changed, and not otherwise', async () => {
  const fleet: Parameters<typeof createWatch>[0] = { problems: [], reports: [] };
  const { readings } = createWatch(fleet);
  await pollOnce();
  const before = readings();
  fleet.reports = [{ id: 'b', missing: [], refusesSince: '2026-11-28T12:00:00Z' }];
  await pollOnce();
  // Each `pollOnce` runs the regular reading too.
  expect([before, readings()]).toEqual([1, 3]);
});

test('an outage does not confirm a warning, which may be a value from its end', async () => {
  const fleet = { problems: [problem({ id: 'store-slow', severity: 'warning' })] };
  const { watch, lines } = createWatch(fleet, true);
  const run = watch.runOnce();
  fleet.problems = [];
  await run;
  expect([watch.problems(), lines]).toEqual([[], []]);
});

/** Lets the problem end and start again the given number of times. */
async function startAgain(
  { watch }: ReturnType<typeof createWatch>,
  fleet: { problems: Problem[] },
  times: number,
) {
  for (let left = times; left > 0; left--)
    for (const problems of [[], [problem()]]) {
      fleet.problems = problems;
      await watch.runOnce();
    }
}

test('each start and each end of a problem is logged, also within a minute', async () => {
  const fleet = { problems: [problem()] };
  const watched = createWatch(fleet, true);
  await watched.watch.runOnce();
  await startAgain(watched, fleet, 2);
  expect(watched.lines).toEqual([began, ended, began, ended, began]);
});

const flaps = expect.objectContaining({
  ...{ level: 'warn', text: 'problem flaps', check: 'no-worker', starts: 4, seconds: 60 },
});

test.each([
  ['exists', [problem()], began],
  ['has ended', [], ended],
])(
  'a fourth start within a minute is logged as flapping, and a steady state as %s',
  async (_, last, line) => {
    const fleet = { problems: [problem()] };
    const watched = createWatch(fleet, true);
    await watched.watch.runOnce();
    await startAgain(watched, fleet, 4);
    const lines = [began, ended, began, ended, began, ended, flaps];
    expect(watched.lines).toEqual(lines);
    fleet.problems = last;
    await watched.watch.runOnce();
    expect(watched.lines).toEqual(lines);
    passMinute();
    await watched.watch.runOnce();
    expect(watched.lines).toEqual([...lines, line]);
  },
);

test('an unreachable store does not end the problems that it hides', async () => {
  const fleet: Parameters<typeof createWatch>[0] = { problems: [problem()] };
  const { watch, lines } = createWatch(fleet, true);
  await watch.runOnce();
  Object.assign(fleet, { problems: [], lacking: [{ name: 'postgres' }], processes: undefined });
  await watch.runOnce();
  await watch.runOnce();
  expect(lines).toEqual([began]);
});

test.each([
  ['an older web process runs', [web, { ...web, id: '0' }], 0],
  ['the older web process is silent', [web, { ...web, id: '0', silentSeconds: 30 }], 1],
  ['only consoles are older', [web, { ...web, id: '0', name: 'board' }], 1],
  ['no web process runs and the console is another process', [{ ...web, id: '0', name: 'board' }], 0],
])('one process logs a problem: %s', async (_, processes, count) => {
  const { watch, lines } = createWatch({ processes: processes as never, problems: [problem()] }, true);
  await watch.runOnce();
  expect(lines).toHaveLength(count);
});

test('/readyz lists problems of the installation without the names of workspaces', () => {
  const stream = (subject: string) =>
    problem({
      ...{ id: 'stream-failing', severity: 'warning', workspaceId: subject, subject, sentence: subject },
      ...{ publicSentence: subject, link: `/streams/${subject}` },
    });
  const ends = problem({
    id: 'process-ends-repeatedly',
    sentence: 'its error',
    publicSentence: 'sync ended',
  });
  const own = problem({ id: 'refuses', sentence: 'own' });
  const installation = [problem({ id: 'refuses', sentence: 'of all' }), ends, stream('crm'), stream('erp')];
  const listed = openProblems([own], installation);
  expect(listed.map(({ id, sentence }) => [id, sentence])).toEqual([
    ['refuses', 'own'],
    ['process-ends-repeatedly', 'sync ended'],
    ['stream-failing', '2 problems of workspaces. Run penstock status for the sentences.'],
  ]);
  expect(JSON.stringify(listed.map(printedProblem))).not.toMatch(/crm|erp|its error/);
});

test('an own problem hides the problems of the installation that it explains', () => {
  const away = problem({ id: 'redis-away' });
  expect(openProblems([away], [problem({ id: 'draining' })])).toEqual([away]);
});

test('/readyz lists at most 50 problems', () => {
  const silent = Array.from({ length: 60 }, (_, n) =>
    problem({ id: 'process-silent', subject: `worker ${n}` }),
  );
  expect(openProblems([], silent)).toHaveLength(50);
});
