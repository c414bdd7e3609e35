import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../../src/platform/files.ts';
import type { Results } from '../results.ts';
import { readCurve } from './curve.ts';
import { drawCurve } from './draw.ts';
import { drawShapes, readShapes } from './shapes.ts';

export const curveFile = path.join(packageRoot, 'generated/throughput-latency.svg');
export const shapesFile = path.join(packageRoot, 'generated/shapes.svg');

/** Returns the chart of throughput and latency, or undefined if the results have no curve. */
export function curveOf(results: Pick<Results, 'rows' | 'machine' | 'date'>): string | undefined {
  const points = readCurve(results);
  if (points.length === 0) return undefined;
  const { cores, processor } = results.machine;
  return drawCurve(
    points,
    `Throughput and latency over load, ${cores} cores of ${processor}, ${results.date}`,
  );
}

/**
 * Draws the chart that the docs show. If the results have no curve, an existing chart is removed. @returns
 * whether there is a chart
 */
export function writeCharts(results: Results): boolean {
  const curve = curveOf(results);
  if (curve === undefined) rmSync(curveFile, { force: true });
  else writeFileSync(curveFile, curve);
  return curve !== undefined;
}

/** Returns the chart of the traffic shapes. */
export function shapesOf(results: Pick<Results, 'rows' | 'machine' | 'date'>): string {
  const { cores, processor } = results.machine;
  return drawShapes(
    readShapes(results),
    `Objects applied per second, and processor time of each; ${cores} cores of ${processor}, ${results.date}`,
  );
}

export function writeShapes(results: Results): void {
  writeFileSync(shapesFile, shapesOf(results));
}
