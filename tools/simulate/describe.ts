import type { Violation } from './history.ts';
import type { Plan } from './plan.ts';
import type { TraceLine } from './trace.ts';

/** Formats a line of the trace: simulated milliseconds, lane, event and details. */
export function describeLine({ at, what, details }: TraceLine): string {
  const { lane, ...rest } = details;
  const laneName = lane === undefined ? '       ' : `lane ${String(lane).padEnd(2)}`;
  return `${at.toFixed(2).padStart(10)}  ${laneName}  ${what} ${JSON.stringify(rest)}`;
}

export function describeViolations(violations: readonly Violation[]): string {
  if (violations.length === 0) return 'every guarantee was kept';
  const shown = violations.slice(0, 10).map(({ guarantee, text }) => `${guarantee}: ${text}`);
  const more = violations.length - shown.length;
  return [...shown, ...(more > 0 ? [`and ${more} more`] : [])].join('\n');
}

export function describePlan({ settings, requests, faults }: Plan): string {
  return [
    `settings ${JSON.stringify(settings)}`,
    `${requests.length} requests`,
    ...(requests.length <= 20 ? requests.map((request) => `  ${JSON.stringify(request)}`) : []),
    `${faults.length} faults`,
    ...faults.map((fault) => `  ${JSON.stringify(fault)}`),
  ].join('\n');
}
