import { median } from '../figure.ts';
import type { Results } from '../results.ts';

/** The medians of the rounds at one load. Rates are in objects per second, times in milliseconds. */
export interface CurvePoint {
  /** Percent of full load. */
  share: number;
  offered: number;
  applied: number;
  acceptP50: number;
  acceptP99: number;
  readableP50: number;
  readableP99: number;
}

/** Returns the results of `--curve` by load; empty if the bench was run without it. */
export function readCurve({ rows }: Pick<Results, 'rows'>): CurvePoint[] {
  return Object.entries(rows)
    .filter(([name]) => /^load-\d+$/.test(name))
    .map(([, { rounds }]) => {
      const of = (member: string) => median(rounds.map(({ detail }) => detail[member]!));
      return {
        share: of('share'),
        offered: of('offered_per_second'),
        applied: of('applied_per_second'),
        acceptP50: of('accept_p50_ms'),
        acceptP99: of('accept_p99_ms'),
        readableP50: of('readable_p50_ms'),
        readableP99: of('readable_p99_ms'),
      };
    })
    .sort((a, b) => a.share - b.share);
}
