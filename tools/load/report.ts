import type { LatencySummary } from './latencies.ts';
import type { Observer } from './observer.ts';
import type { LoadResult } from './run-load.ts';

/** Hint for responses with status 429: the default limit is too low for a measurement. */
const RAISE_THE_LIMIT =
  'The rate limit was met. Raise it and run again:\n' +
  '  penstock limits set --workspace default --bucket users.track --requests 100000000 --window-seconds 60\n';

/** Formats the result as text. */
export function describeResult(result: LoadResult, observer: Observer): string {
  const { tally, seconds, applied, accept, probes, generatorCores } = result;
  const lines = [
    row(
      'requests',
      `${whole(tally.requests / seconds)}/s`,
      `${whole(tally.requests)} in ${seconds.toFixed(1)} s`,
    ),
    row('accepted', `${whole(tally.accepted / seconds)} objects/s`, `${whole(tally.accepted)} objects`),
  ];
  if (applied) {
    const detail = `${whole(applied.objects)} objects in ${applied.seconds.toFixed(1)} s, by ${observer.source}`;
    lines.push(row('applied', `${whole(applied.objects / applied.seconds)} objects/s`, detail));
    if (!applied.complete) {
      lines.push(row('', `NOT APPLIED YET: ${whole(tally.accepted - applied.objects)} accepted objects`));
    }
  }
  lines.push(row('accept', latency(accept)));
  if (probes) {
    lines.push(row('accepted→readable', latency(probes.readable), `${probes.readable?.count ?? 0} probes`));
    if (probes.failure) lines.push(row('', `probes ended early: ${probes.failure}`));
  }
  lines.push(row('refused', `${whole(tally.rejected)} objects`));
  lines.push(row('generator', `${generatorCores.toFixed(2)} cores`));
  if (tally.errors.size > 0) lines.push('', 'errors by kind');
  for (const [kind, count] of [...tally.errors].sort((a, b) => b[1] - a[1])) {
    lines.push(`${whole(count).padStart(10)}  ${kind}`);
  }
  const hint = [...tally.errors.keys()].some((kind) => kind.startsWith('429')) ? `\n${RAISE_THE_LIMIT}` : '';
  return `${lines.join('\n')}\n${hint}`;
}

function row(name: string, value: string, detail?: string): string {
  return `${name.padEnd(18)} ${value}${detail ? ` (${detail})` : ''}`;
}

function latency(summary: LatencySummary | undefined): string {
  if (!summary) return 'not measured';
  return `p50 ${milliseconds(summary.p50)}, p99 ${milliseconds(summary.p99)}, longest ${milliseconds(summary.max)}`;
}

function milliseconds(value: number): string {
  return `${value < 10 ? value.toFixed(2) : value.toFixed(0)} ms`;
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}
