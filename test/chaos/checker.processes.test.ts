import { expect, test } from 'vitest';
import { type Breakage, brokenWorker } from '../../tools/chaos/broken/broken-worker.ts';
import { checkKeyed, toldApart } from '../../tools/chaos/check/keyed.ts';
import { createKeyedLoad } from '../../tools/chaos/load/keyed.ts';
import { startLoad } from '../../tools/chaos/load/load.ts';
import { Scene } from '../../tools/chaos/scene.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { busyWorker } from '../setup/fleet.ts';
import { isLong } from '../setup/length.ts';
import { startCommitCutter } from '../workers/commit-cutter.ts';

const CUTS = 6;

/** Attempts, because it is a matter of timing whether a cut affects a commit, or a job is overtaken. */
const TRIES = 5;

/** A worker loses its connection around commits, or is killed and replaced, under load. */
async function runWith(breakage: Breakage | undefined, faults: ('cut' | 'kill')[]) {
  const { url } = await createDatabase();
  const scene = new Scene({
    backend: 'redis',
    createDatabase: async () => ({ url }),
    short: true,
    seed: 1,
    say: () => {},
  });
  const cutter = await startCommitCutter(url);
  const fleet = await scene.startFleet({ edges: 1, workers: 0 });
  const env = { DATABASE_URL: cutter.url, ...(breakage && brokenWorker(breakage)) };
  await fleet.startWorker(env);
  // More jobs must wait than are put aside, so that some job can overtake them.
  const load = startLoad(fleet, { maxUnapplied: breakage === 'overtaken-retry' ? 5000 : 500 });
  await load.more(100);
  for (let cut = 0; faults.includes('cut') && cut < CUTS; cut++) {
    const before = cutter.cuts();
    cutter.arm(cut % 2 === 0 ? 'before' : 'after');
    while (cutter.cuts() === before) await load.more(10);
  }
  if (faults.includes('kill')) {
    const sent = load.more(200);
    await fleet.end(await busyWorker(fleet));
    await fleet.startWorker(env);
    await sent;
  }
  await scene.waitUntilApplied(fleet, { load });
  await fleet.stop();
  return scene;
}

// In the short form, every scenario of the other files shows that a correct worker passes.
test.runIf(isLong)('a correct worker passes the scenarios in which the broken ones below fail', async () => {
  const scene = await runWith(undefined, ['cut', 'kill']);
  expect(scene.describeFindings()).toEqual([]);
  expect(scene.sums[0]).toMatchObject({ lost: 0, doubled: 0, outOfOrder: 0 });
  expect(scene.sums[0]!.applied).toBe(scene.sums[0]!.acknowledged);
});

test.each<[breakage: Breakage, fault: 'cut' | 'kill', invariant: string]>([
  ['acknowledges-early', 'kill', 'I1'],
  ['without-ledger', 'cut', 'I2'],
  ['overtaken-retry', 'cut', 'I4'],
])(
  'a broken worker (%s, then a %s) is detected by %s, which names the objects',
  async (breakage, fault, invariant) => {
    let scene = await runWith(breakage, [fault]);
    for (let tried = 1; tried < TRIES && scene.findings.length === 0; tried++)
      scene = await runWith(breakage, [fault]);
    const caught = new Set(scene.findings.map((finding) => finding.invariant));
    // A duplicate also creates another profile.
    if (invariant === 'I2') caught.delete('I5');
    // An early acknowledgement allows two simultaneous batches of a lane.
    if (invariant === 'I1') caught.delete('I4');
    // A job put aside in memory is lost with its worker. It is also retried outside of the lane, so that two
    // batches of one lane
    // run at the same time, without knowledge of the users that the other creates.
    if (invariant === 'I4') for (const other of ['I1', 'I2', 'I5'] as const) caught.delete(other);
    expect(caught).toEqual(new Set([invariant]));
    const named = scene.describeFindings().find((finding) => finding.includes(invariant)) ?? '';
    expect(named).toMatch(/object \d+ \(.* of person-\d+, round \d+; request \d+ → 201\)/);
    expect(scene.passed).toBe(false);
  },
);

test('a service that ignores idempotency keys is detected by I2, also by its answers', async () => {
  const { url } = await createDatabase();
  const options = {
    backend: 'postgres' as const,
    createDatabase: async () => ({ url }),
    short: true,
    seed: 1,
  };
  const scene = new Scene({ ...options, say: () => {} });
  const fleet = await scene.startFleet({ edges: 1, workers: 1 });
  const { id, key } = fleet.workspace;
  const keyed = createKeyedLoad(fleet, key, 'X-No-Key');
  const one = keyed.make();
  await keyed.repeat(one, 3);
  await keyed.misuse(one);
  await scene.waitUntilApplied(fleet, {});
  const findings = await checkKeyed(fleet.pool, id, keyed.all);
  expect(findings.map(({ invariant }) => invariant)).toEqual(['I2']);
  expect(findings[0]!.what).toMatch(/keyed-0, sent 3 times .* 3 attribute objects, 3 events, 3 purchases/);
  expect(toldApart(keyed.all)).toHaveLength(1);
  // Pretend that all was rejected, and that objects that were never sent were accepted.
  const refused = { ...one, answers: [], refusals: [] };
  const lost = { ...one, user: 'nobody', refusals: one.refusals };
  expect((await checkKeyed(fleet.pool, id, [refused])).map(({ invariant }) => invariant)).toEqual([
    'I3',
    'I3',
  ]);
  expect((await checkKeyed(fleet.pool, id, [lost])).map(({ invariant }) => invariant)).toEqual(['I1']);
  await fleet.stop();
});
