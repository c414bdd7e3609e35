import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { readCurve } from '../../tools/bench/chart/curve.ts';
import { linearScale, logScale } from '../../tools/bench/chart/scale.ts';
import { readShapes } from '../../tools/bench/chart/shapes.ts';
import { curveFile, curveOf, shapesFile, shapesOf } from '../../tools/bench/chart/write.ts';
import type { Figure } from '../../tools/bench/figure.ts';
import type { Results, RowResult } from '../../tools/bench/results.ts';

const recorded: Results = JSON.parse(
  readFileSync(path.join(packageRoot, 'generated/bench-results.json'), 'utf8'),
);

/** Simulates loads of 1,000, 2,000 and 3,000 objects/s at 100 %, in three rounds. */
function loadRow(share: number): RowResult {
  const rounds = [1, 2, 3].map((round): Figure => {
    const offered = 10 * share * round;
    const [accept, readable] = [share / 10, share * round];
    return {
      value: offered,
      unit: '/s',
      detail: {
        ...{ share, rows: 100, offered_per_second: offered, applied_per_second: offered * 0.9 },
        ...{ accept_p50_ms: accept, accept_p99_ms: accept * 5 },
        ...{ readable_p50_ms: readable, readable_p99_ms: readable * 4 },
      },
    };
  });
  return { what: '', unit: '/s', median: 20 * share, spread: 0.5, rounds };
}

const results = {
  ...recorded,
  rows: {
    'load-100': loadRow(100),
    'load-10': loadRow(10),
    'load-50': loadRow(50),
    'latency-70': loadRow(70),
  },
};

test('a curve has the medians of the rounds, by load', () => {
  const curve = readCurve(results);
  expect(curve.map(({ share }) => share)).toEqual([10, 50, 100]);
  expect(curve[2]).toEqual({
    ...{ share: 100, offered: 2000, applied: 1800 },
    ...{ acceptP50: 10, acceptP99: 50, readableP50: 200, readableP99: 800 },
  });
  expect(readCurve({ rows: {} })).toEqual([]);
});

test('the chart shows each point of each line, with its value, inside of its axes', () => {
  const svg = curveOf(results)!;
  expect(svg.match(/<polyline /g)).toHaveLength(6);
  expect(svg).toContain('<title>100 % of full load, applied: 1,800</title>');
  expect(svg).toContain('<title>10 % of full load, accept p50: 1.0</title>');
  for (const text of ['objects/s offered', 'milliseconds, logarithmic', 'readable p99', 'accept p50']) {
    expect(svg).toContain(text);
  }
  const circles = [...svg.matchAll(/<circle [^>]*cx="([\d.]+)" cy="([\d.]+)"/g)].map(([, x, y]) => [
    +x!,
    +y!,
  ]);
  expect(circles).toHaveLength(18);
  for (const [x, y] of circles) {
    expect(x).toBeGreaterThanOrEqual(80);
    expect(x).toBeLessThanOrEqual(860);
    expect(y).toBeGreaterThanOrEqual(84);
    expect(y).toBeLessThanOrEqual(560);
  }
  expect(svg).not.toMatch(/NaN|undefined|<script/);
});

test('axes have round values around their data', () => {
  expect(linearScale(27_000, 0, 100).ticks).toEqual([0, 5000, 10_000, 15_000, 20_000, 25_000, 30_000]);
  const { positionOf, ticks } = logScale([3, 80], 0, 100);
  expect(ticks).toEqual([1, 2, 5, 10, 20, 50, 100]);
  expect([1, 10, 100].map(positionOf)).toEqual([0, 50, 100]);
});

test('generated/throughput-latency.svg matches bench-results.json; npm run charts draws it', () => {
  const committed = existsSync(curveFile) ? readFileSync(curveFile, 'utf8') : undefined;
  expect(committed).toBe(curveOf(recorded));
});

test('the chart of the shapes has a bar for each, with its rate and cost per object', () => {
  const shape = (value: number): RowResult => ({
    ...{ what: `objects of <${value}>`, unit: '/s', median: value, spread: 0 },
    rounds: [
      {
        ...{ value, unit: '/s' },
        detail: {
          ...{
            cpu_us_web: 10,
            cpu_us_worker: 12.5,
            cpu_us_postgres: 20,
            cpu_us_redis: 1,
            cpu_us_generator: 5,
          },
          ...{ accept_p50_ms: 4, accept_p99_ms: 30 },
        },
      },
    ],
  });
  const rows = { 'shape-mixed': shape(20_000), 'ours-75': shape(5), 'shape-sdk': shape(4000) };
  expect(readShapes({ rows }).map(({ rate, cost }) => [rate, cost])).toEqual([
    [20_000, 43.5],
    [4000, 43.5],
  ]);
  const svg = shapesOf({ ...recorded, rows });
  expect(svg.match(/<rect class="bar"/g)).toHaveLength(2);
  expect(svg).toContain('20,000/s · 43.5 µs');
  expect(svg).toContain('objects of &lt;4000&gt;');
  expect(svg).not.toMatch(/NaN|undefined|<script/);
});

test('generated/shapes.svg matches bench-shapes.json; npm run charts draws it', () => {
  const file = path.join(packageRoot, 'generated/bench-shapes.json');
  const drawn = existsSync(file) ? shapesOf(JSON.parse(readFileSync(file, 'utf8'))) : undefined;
  expect(existsSync(shapesFile) ? readFileSync(shapesFile, 'utf8') : undefined).toBe(drawn);
});
