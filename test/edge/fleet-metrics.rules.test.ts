import { Registry } from 'prom-client';
import { expect, test } from 'vitest';
import { createReader } from '../../src/checks/read.ts';
import { findProblems } from '../../src/checks/registry.ts';
import { addFleetMetrics } from '../../src/edge/fleet-metrics.ts';

test('penstock_problems has problems that only the process itself detects', async () => {
  const registry = new Registry();
  const pool = {
    on() {},
    async query({ text }: { text: string }) {
      if (text.includes('from processes')) return { rows: [] };
      throw new Error('not answered by this test');
    },
  };
  const connection = { kind: 'postgres', laneStore: { ready: () => false } };
  const stores = { pool: pool as never, connection: connection as never, lanes: 1, dataDir: '/' };
  const reader = createReader(
    { ...stores, queue: { ...stores, kind: 'postgres' } },
    { readsOnce: false },
    {
      lacking: () => [{ name: 'producer' }],
      rejectsWrites: () => ({ reason: 'disk full', since: new Date() }),
    },
  );
  const problems = findProblems(await reader.read(), 'fleet');
  const fleet = addFleetMetrics(registry, {
    ...stores,
    ...{ depth: { lanes: async () => [] } as never, oldest: { ages: () => [], standstill: () => 0 } },
    problems: () => problems,
  });
  await fleet.refresh();
  const lines = await registry.getSingleMetricAsString('penstock_problems');
  expect(lines).toContain('{check="producer-away",severity="critical"} 1');
  expect(lines).toContain('{check="postgres-rejects-writes",severity="critical"} 1');
});
