import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { Viewer } from '../../src/board/access.ts';
import type { FleetState } from '../../src/board/fleet.ts';
import { healthParts } from '../../src/board/pages/health.ts';
import { problemList } from '../../src/board/problems.ts';
import type { Problem } from '../../src/checks/check.ts';
import { packageRoot } from '../../src/platform/files.ts';

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
  const [first = ''] = markup.match(new RegExp(`aria-label="${name}".*?</table>`, 's')) ?? [];
  const [, ...rows] = first.split('<tr');
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

test('problems of the list and of form fields have different CSS classes', () => {
  const operator = { accountId: undefined } as Viewer;
  const problem = { severity: 'warning', workspaceId: null, link: '/', firstStep: '', impact: '' } as Problem;
  const [, classes] = /<li class="([^"]+)"/.exec(problemList([problem], operator).text)!;
  const styles = readFileSync(path.join(packageRoot, 'src/board/assets/console.css'), 'utf8');
  for (const name of classes!.split(' ')) expect(styles).toContain(`.${name}`);
  const form = readFileSync(path.join(packageRoot, 'src/board/resource-form.ts'), 'utf8');
  const [, ofField] = /<strong class="([a-z-]+)" role="alert">/.exec(form)!;
  expect(classes!.split(' ')).not.toContain(ofField);
});

test('an account that may not see a problem reads that its list can be incomplete, not that all is normal', () => {
  const problem = {
    severity: 'warning',
    workspaceId: 'w',
    permit: 'syncs',
    sentence: 'A stream fails.',
  } as Problem;
  const account = { accountId: 'a', can: () => false, workspacesWith: () => [] } as unknown as Viewer;
  const operator = { accountId: undefined } as Viewer;
  // The text is the same without a problem, so it reveals nothing about other workspaces.
  for (const problems of [[problem], []]) {
    const { text } = problemList(problems, account);
    expect(text).toContain('Your account sees no problem.');
    expect(text).not.toMatch(/normal|stream/);
  }
  expect(problemList([], operator).text).toContain('All systems normal.');
});

test('processes are one line while all of them work, and a table if one does not', () => {
  const process = {
    ...{ name: 'worker', host: 'a', pid: 1, version: '1.0.0', lanes: [], missing: [] as string[] },
    ...{ silentSeconds: 1, objectsPerSecond: 2, residentBytes: 1, loopBusy: 0, startedAt: new Date(0) },
  };
  const processesOf = (...missing: string[]) => {
    const processes = [process, process, { ...process, name: 'web', missing }] as never;
    return healthParts({ at: new Date(0), problems: [], processes } as unknown as FleetState, 'redis')
      .processes!.text;
  };
  expect(processesOf().replaceAll(/<[^>]*>/g, '')).toContain('3 processes: web, 2 worker');
  expect(processesOf()).toMatch(/^<details/);
  expect(processesOf('redis')).not.toContain('<details');
  expect(processesOf('redis')).toContain('without redis');
});
