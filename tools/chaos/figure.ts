import { loadavg } from 'node:os';

/** The allowed range of a figure. */
export interface Limit {
  atMost?: number;
  atLeast?: number;
  /**
   * Whether the limit also applies when the machine is shared with other tests, because it is far above the
   * usual value.
   */
  firm?: boolean;
}

/** A figure of the list of faults with its measured value. */
export interface Figure {
  name: string;
  measured: number;
  unit: string;
  limit: Limit;
  passed: boolean;
  /** Load average of the machine over the last minute. */
  load: number;
}

export function figureOf(name: string, measured: number, unit: string, limit: Limit): Figure {
  const { atMost = Number.POSITIVE_INFINITY, atLeast = Number.NEGATIVE_INFINITY } = limit;
  const passed = measured >= atLeast && measured <= atMost;
  return { name, measured, unit, limit, passed, load: loadavg()[0]! };
}

export function describeFigure({ name, measured, unit, limit, passed, load }: Figure): string {
  const wanted = [
    ...(limit.atLeast === undefined ? [] : [`≥ ${round(limit.atLeast)}`]),
    ...(limit.atMost === undefined ? [] : [`≤ ${round(limit.atMost)}`]),
  ];
  const requested =
    limit.atLeast === limit.atMost && limit.atMost !== undefined ? [`= ${round(limit.atMost)}`] : wanted;
  const of = requested.length === 0 ? '' : `  (${requested.join(' and ')})`;
  return `  ${passed ? '✓' : '✗'} ${name}: ${round(measured)}${unit && ` ${unit}`}${of}  load ${load.toFixed(1)}`;
}

function round(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return (Math.abs(value) >= 100 ? Math.round(value) : Math.round(value * 100) / 100).toLocaleString('en');
}
