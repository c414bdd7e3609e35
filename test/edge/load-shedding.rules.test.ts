import { Registry } from 'prom-client';
import { describe, expect, test } from 'vitest';
import { createLoadShedding } from '../../src/edge/load-shedding.ts';
import { watchLoopLag } from '../../src/edge/metrics.ts';

describe('high-water marks', () => {
  const scene = () => {
    const values = { depth: 0, lag: 0 };
    const held: Record<string, number> = {};
    const registry = new Registry();
    const loadShedding = createLoadShedding(
      [
        {
          ...{ name: 'depth', mark: 100, unit: 'jobs', ofQueue: true, waits: true },
          value: () => values.depth,
          heldBy: (workspaceId) => held[workspaceId] ?? 0,
        },
        { name: 'lag', mark: 50, unit: 'ms', value: () => values.lag },
      ],
      registry,
    );
    return { values, held, registry, loadShedding };
  };

  test('a value is accepted at its mark, and above it the reason contains both', () => {
    const { values, loadShedding } = scene();
    values.depth = 100;
    expect(loadShedding.overload('queue')?.reason).toBeUndefined();
    values.depth = 101;
    expect(loadShedding.overload('queue')?.reason).toBe('depth is 101 jobs, over its mark of 100');
  });

  test('an exceeded mark is reset at nine tenths of it, and not before', () => {
    const { values, loadShedding } = scene();
    for (const [depth, over] of [
      [101, true],
      [95, true],
      [91, true],
      [90, false],
      [95, false],
      [101, true],
    ] as const) {
      values.depth = depth;
      expect([depth, loadShedding.overload('queue')?.reason !== undefined]).toEqual([depth, over]);
    }
  });

  test('a full shard refuses its own workspaces, and web is overloaded once every shard is full', () => {
    const depths = [101, 0];
    const depth = {
      ...{ name: 'depth', mark: 100, unit: 'jobs', ofQueue: true, waits: true },
      value: (shard?: number) => (shard === undefined ? Math.max(...depths) : depths[shard]!),
    };
    const loadShedding = createLoadShedding([depth], new Registry(), depths.length);
    expect(loadShedding.overload('queue', { shard: 0 })?.limit).toBe('depth');
    expect(loadShedding.overload('queue', { shard: 1 })).toBeUndefined();
    expect(loadShedding.overload('queue')).toBeUndefined();
    expect(loadShedding.levels().depth?.over).toBe(true);
    depths[1] = 101;
    expect(loadShedding.overload('queue')?.reason).toContain('101 jobs');
  });

  test('a full queue does not refuse requests that bypass it, but event-loop lag does', () => {
    const { values, loadShedding } = scene();
    values.depth = 1000;
    expect(loadShedding.overload('store')?.reason).toBeUndefined();
    expect(loadShedding.overload('queue')?.reason).toBeDefined();
    values.lag = 51;
    expect(loadShedding.overload('store')?.reason).toContain('lag');
  });

  test('low-priority work is refused at half of a mark for waiting work, but not of other marks', () => {
    const { values, loadShedding } = scene();
    values.depth = 50;
    values.lag = 50;
    expect(loadShedding.overload('half-full queue')?.reason).toBeUndefined();
    values.depth = 51;
    expect(loadShedding.overload('half-full queue')?.reason).toBe('depth is 51 jobs, over its mark of 50');
    expect(loadShedding.overload('queue')?.reason).toBeUndefined();
    values.depth = 0;
    expect(loadShedding.overload('half-full queue')?.reason).toBeUndefined();
  });

  test('a workspace is refused while it has more than is free, and others are accepted', () => {
    const { values, held, loadShedding } = scene();
    const limitOf = (workspaceId: string) => loadShedding.overload('queue', { workspaceId })?.limit;
    Object.assign(values, { depth: 50 });
    Object.assign(held, { noisy: 50 });
    expect(limitOf('noisy')).toBeUndefined();
    Object.assign(values, { depth: 52 });
    Object.assign(held, { noisy: 51, quiet: 1 });
    expect(loadShedding.overload('queue', { workspaceId: 'noisy' })).toEqual({
      limit: 'share',
      reason: 'the workspace has 51 jobs of depth, over the 48 that are free',
    });
    expect([limitOf('quiet'), limitOf('new')]).toEqual([undefined, undefined]);
    expect(loadShedding.overload('store', { workspaceId: 'noisy' })).toBeUndefined();
    expect(loadShedding.levels().depth).toMatchObject({ over: false });
  });

  test('two workspaces get a third each, and above the mark all are refused', () => {
    const { values, held, loadShedding } = scene();
    const limitsOf = () =>
      ['one', 'two'].map((workspaceId) => loadShedding.overload('queue', { workspaceId })?.limit);
    Object.assign(values, { depth: 66 });
    Object.assign(held, { one: 33, two: 33 });
    expect(limitsOf()).toEqual([undefined, undefined]);
    Object.assign(values, { depth: 68 });
    Object.assign(held, { one: 34, two: 34 });
    expect(limitsOf()).toEqual(['share', 'share']);
    Object.assign(values, { depth: 101 });
    expect(limitsOf()).toEqual(['depth', 'depth']);
  });

  test('values, marks and exceeded marks are shown in metrics and in /readyz', async () => {
    const { values, loadShedding, registry } = scene();
    values.depth = 123;
    expect(loadShedding.levels()).toEqual({
      depth: { value: 123, mark: 100, unit: 'jobs', over: true },
      lag: { value: 0, mark: 50, unit: 'ms', over: false },
    });
    const page = await registry.metrics();
    for (const line of [
      'penstock_web_depth_jobs 123',
      'penstock_web_depth_limit_jobs 100',
      'penstock_web_lag_seconds 0',
      'penstock_web_lag_limit_seconds 0.05',
      'penstock_high_water_used_ratio{mark="depth"} 1.23',
      'penstock_high_water_over{mark="depth"} 1',
      'penstock_high_water_over{mark="lag"} 0',
    ])
      expect(page.split('\n')).toContain(line);
  });

  test('an unknown value is shown as NaN, not as 0', async () => {
    const registry = new Registry();
    const unknown = { name: 'depth', mark: 100, unit: 'jobs', value: () => 0, isCurrent: () => false };
    createLoadShedding([unknown], registry);
    const page = await registry.metrics();
    expect(page).toContain('penstock_web_depth_jobs Nan\n');
    expect(page).toContain('penstock_high_water_used_ratio{mark="depth"} Nan\n');
  });
});

test('the lag of a blocked event loop is detected, and ends when the loop runs again', async () => {
  const loop = watchLoopLag();
  const end = performance.now() + 1000;
  while (performance.now() < end);
  await expect.poll(loop.lag, { interval: 1 }).toBeGreaterThan(300);
  await expect.poll(loop.lag, { timeout: 30_000 }).toBeLessThan(300);
  await loop.stop();
});
