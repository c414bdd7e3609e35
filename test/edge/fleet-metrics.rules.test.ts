import { Registry } from 'prom-client';
import { expect, test } from 'vitest';
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
  const fleet = addFleetMetrics(registry, {
    ...{ pool: pool as never, connection: connection as never, lanes: 1, dataDir: '/' },
    ...{ depth: { lanes: async () => [] } as never, oldest: { ages: () => [], standstill: () => 0 } },
    lacking: () => [{ name: 'producer' }],
    rejectsWrites: () => ({ reason: 'disk full', since: new Date() }),
  });
  await fleet.refresh();
  const lines = await registry.getSingleMetricAsString('penstock_problems');
  expect(lines).toContain('{check="producer-away",severity="critical"} 1');
  expect(lines).toContain('{check="postgres-rejects-writes",severity="critical"} 1');
});
