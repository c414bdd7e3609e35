import { beforeAll, describe, expect, test } from 'vitest';
import { buckets } from '../../src/schemas/limits.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstock, penstockOn } from './penstock.ts';

const everyBucket = Object.entries(buckets).map(([bucket, { requests, windowSeconds }]) => ({
  bucket,
  requests,
  window_seconds: windowSeconds,
  overridden: false,
}));

let on: PenstockOn;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  await makeWorkspaces(url, 'shop', 'school');
});

const set = 'limits set --workspace shop --bucket users.track';

describe('limits list', () => {
  test('shows the defaults without --workspace, even if Penstock is not running', async () => {
    const { code, stdout } = await penstock(['limits', 'list', '--json']);
    expect({ code, ...JSON.parse(stdout) }).toEqual({ code: 0, limits: everyBucket, next: null });
  });

  test('shows the defaults of VENDOR_RULES=current without --workspace if it is set', async () => {
    const { stdout } = await penstock(['limits', 'list', '--json'], { VENDOR_RULES: 'current' });
    const limits: typeof everyBucket = JSON.parse(stdout).limits;
    const [track] = limits;
    expect([track!.bucket, track!.requests, track!.window_seconds]).toEqual(['users.track', 3000, 3]);
    expect(limits.map(({ bucket }) => bucket)).toEqual(everyBucket.map(({ bucket }) => bucket));
  });

  test('aligns numbers right', async () => {
    const { stdout } = await on.run('limits list --workspace shop');
    const [head = '', row = ''] = stdout.split('\n');
    expect(row.indexOf('50000') + '50000'.length).toBe(head.indexOf('requests') + 'requests'.length);
  });
});

describe('limits set', () => {
  test('overrides the limit of one bucket in one workspace; the last value is kept', async () => {
    await on.json(`${set} --requests 10 --window-seconds 1`);
    expect(await on.json(`${set} --requests 100000 --window-seconds 30`)).toEqual({
      workspace: 'shop',
      bucket: 'users.track',
      requests: 100_000,
      window_seconds: 30,
      overridden: true,
    });
    const { limits } = await on.json('limits list --workspace shop');
    const [track, ...others] = everyBucket;
    expect(limits).toEqual([
      { ...track, requests: 100_000, window_seconds: 30, overridden: true },
      ...others,
    ]);
    expect((await on.json('limits list --workspace school')).limits).toEqual(everyBucket);
  });

  test('rejects a limit of 0 requests with the rule', async () => {
    expectRefusal(
      await on.run(`${set} --requests 0 --window-seconds 60`),
      '--requests',
      'whole number from 1',
    );
  });

  test('rejects a window of 0 seconds', async () => {
    expectRefusal(
      await on.run(`${set} --requests 1 --window-seconds 0`),
      '--window-seconds',
      'whole number from 1',
    );
  });

  test('rejects an unknown bucket and lists the known buckets', async () => {
    const outcome = await on.run(
      'limits set --workspace shop --bucket users.fly --requests 1 --window-seconds 1',
    );
    expectRefusal(outcome, "'users.fly'", 'users.identity');
  });

  test('rejects an unknown workspace and names it', async () => {
    const outcome = await on.run(
      'limits set --workspace moon --bucket default --requests 1 --window-seconds 1',
    );
    expectRefusal(outcome, "'moon'");
  });
});

describe('limits reset', () => {
  test('removes one override or all overrides of a workspace', async () => {
    await on.json('limits set --workspace shop --bucket default --requests 5 --window-seconds 5');
    await on.json('limits set --workspace school --bucket default --requests 7 --window-seconds 7');
    const { limits } = await on.json('limits reset --workspace shop --bucket users.track');
    expect(limits.filter((limit: { overridden: boolean }) => limit.overridden)).toMatchObject([
      { bucket: 'default' },
    ]);
    expect((await on.json('limits reset --workspace shop')).limits).toEqual(everyBucket);
    const school = await on.json('limits list --workspace school');
    expect(school.limits.filter((limit: { overridden: boolean }) => limit.overridden)).toHaveLength(1);
  });
});
