/** One measurement of one row. */
export interface Figure {
  value: number;
  /** `/s` is rows or requests per second, where more is better. For the other units, less is better. */
  unit: '/s' | 'ms' | 'x';
  detail: Record<string, number>;
}

export interface BenchRow {
  name: string;
  what: string;
  /**
   * Whether it is measured once after all rounds, because it takes minutes or changes the state for later
   * rows.
   */
  once?: true;
  measure(): Promise<Figure>;
}

export function median(values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Returns half the distance between the largest and the smallest value, as a share of the median. */
export function spread(values: number[]): number {
  return (Math.max(...values) - Math.min(...values)) / 2 / median(values);
}
