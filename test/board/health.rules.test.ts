import { expect, test } from 'vitest';
import type { FleetState } from '../../src/board/fleet.ts';
import { healthParts } from '../../src/board/pages/health.ts';

/** Creates lanes by shard. Lane n applies n objects per second. */
function lanesOf(shards: number[], more: object[] = []): Partial<FleetState> {
  const lanes = shards.map((shard, lane) => ({
    ...{ lane: `lane-${lane}`, shard, depth: 3, oldestSeconds: 10 * (lane + 1) },
    ...more[lane],
  }));
  return { lanes, rates: { deadLetters: 0, lanes: shards.map((_, lane) => lane) } };
}

/** Returns the cells of a named table, row by row. */
function rowsOf(markup: string, name: string): string[][] {
  const [found = ''] = markup.match(new RegExp(`aria-label="${name}".*?</table>`, 's')) ?? [];
  const [, ...rows] = found.split('<tr');
  return rows
    .map((row) =>
      [...row.matchAll(/<td[^>]*>(.*?)<\/td>/gs)].map(([, cell]) => cell!.replace(/<[^>]*>/g, '')),
    )
    .filter((cells) => cells.length > 0);
}

const shown = (now: Partial<FleetState>) =>
  healthParts({ at: new Date(0), problems: [], ...now } as FleetState, 'redis').lanes!.text;

test('the shard table shows waiting jobs, oldest job and rate of each shard', () => {
  const lanes = lanesOf([0, 0, 1, 1], [{}, { depth: 0, oldestSeconds: 0 }]);
  expect(rowsOf(shown(lanes), 'Shards')).toEqual([
    ['0', '3', '10 s', '1 objects/s'],
    ['1', '6', '40 s', '5 objects/s'],
  ]);
});

test('a shard with a lane that does not answer is shown as away', () => {
  const away = { depth: 0, oldestSeconds: 0, away: true };
  expect(rowsOf(shown(lanesOf([0, 1], [{}, away])), 'Shards')[1]).toEqual(['1', 'away', '', '1 objects/s']);
});

test('a single shard is not shown as a table', () => {
  expect(shown(lanesOf([0, 0]))).not.toContain('hard');
});
