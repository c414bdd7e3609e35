import type { Figure } from './figure.ts';
import { median, spread } from './figure.ts';
import type { Machine } from './machine.ts';
import { ratios } from './ratios.ts';

export interface RowResult {
  what: string;
  unit: Figure['unit'];
  median: number;
  spread: number;
  rounds: Figure[];
}

export interface RatioResult {
  median: number;
  spread: number;
  rounds: number[];
}

/** The content of generated/bench-results.json. */
export interface Results {
  command: string;
  date: string;
  machine: Machine;
  settings: Record<string, unknown>;
  rows: Record<string, RowResult>;
  /** Ratios within each round, so that a slow minute of the machine affects both sides. */
  ratios: Record<string, RatioResult>;
  /** Ratios of the processor time of all processes per object, for rows that have it. */
  costs: Record<string, RatioResult>;
}

/** Summarizes the measurements of each row, one figure per round. */
export function summarize(measured: Map<string, { what: string; figures: Figure[] }>) {
  const rows: Record<string, RowResult> = {};
  for (const [name, { what, figures }] of measured) {
    const values = figures.map(({ value }) => value);
    const { unit } = figures[0]!;
    rows[name] = { what, unit, median: median(values), spread: spread(values), rounds: figures };
  }
  const compare = (of: (figure: Figure) => number) => {
    const compared: Record<string, RatioResult> = {};
    for (const [name, over] of ratios) {
      const [row, base] = [rows[name], rows[over]];
      if (!row || !base) continue;
      const rounds = row.rounds.map((figure, round) => of(figure) / of(base.rounds[round]!));
      if (!rounds.every((ratio) => Number.isFinite(ratio) && ratio > 0)) continue;
      compared[`${name}/${over}`] = { median: median(rounds), spread: spread(rounds), rounds };
    }
    return compared;
  };
  return { rows, ratios: compare(({ value }) => value), costs: compare(costOf) };
}

/** Returns microseconds of processor time per row over all processes; 0 if it was not measured. */
export function costOf({ detail }: Figure): number {
  const costs = Object.entries(detail).filter(([name]) => name.startsWith('cpu_us_'));
  return costs.reduce((sum, [, microseconds]) => sum + microseconds, 0);
}

/** The content of bounds.json, by the names of ratios. A bound is at most nine tenths of the best result. */
export interface Bounds {
  /** Minimum values of ratios where more is better. */
  floors: Record<string, number>;
  /** Maximum values of processor time. */
  ceilings: Record<string, number>;
}

/**
 * Returns the ratios below their floor and the costs above their ceiling. Rows that were not measured are
 * omitted.
 */
export function outOfBounds(
  { ratios, costs }: Pick<Results, 'ratios' | 'costs'>,
  { floors, ceilings }: Bounds,
): string[] {
  const low = Object.entries(floors).flatMap(([name, floor]) => {
    const ratio = ratios[name];
    return ratio && ratio.median < floor ? [`${name}: ${ratio.median.toFixed(2)} is under ${floor}`] : [];
  });
  const high = Object.entries(ceilings).flatMap(([name, ceiling]) => {
    const cost = costs[name];
    return cost && cost.median > ceiling
      ? [`${name}: ${cost.median.toFixed(2)} times the processor time is over ${ceiling}`]
      : [];
  });
  return [...low, ...high];
}
