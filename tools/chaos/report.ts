import { loadavg } from 'node:os';
import type { Sums } from './check/people.ts';
import { describeFigure } from './figure.ts';
import type { Scene } from './scene.ts';

/** Result of a scenario. */
export interface ScenarioResult {
  title: string;
  passed: boolean;
  /** Absent if the scenario could not run. */
  scene?: Scene;
  /** Reason why it could not run on this machine. */
  impossible?: string;
  /** Error of the scenario itself. */
  broken?: string;
  seconds: number;
  load?: number;
}

export function describeResult({
  title,
  passed,
  scene,
  impossible,
  broken,
  seconds,
  load,
}: ScenarioResult): string {
  if (impossible) return `– ${title}: not run: ${impossible}\n`;
  const lines = [
    `${passed ? 'passed' : 'FAILED'}  ${title}  ${Math.round(seconds)} s, load ${(load ?? loadavg()[0]!).toFixed(1)}`,
    ...(scene?.figures.map(describeFigure) ?? []),
    ...(scene?.describeFindings() ?? []),
    ...(scene?.notes.map((note) => `    ${note}`) ?? []),
    ...(broken ? [`    ${broken}`] : []),
  ];
  return `${lines.join('\n')}\n`;
}

/** Formats the totals over all scenarios. */
export function describeTotals(results: ScenarioResult[]): string {
  const total = (name: keyof Sums) =>
    results
      .flatMap(({ scene }) => scene?.sums ?? [])
      .reduce((sum, sums) => sum + sums[name], 0)
      .toLocaleString('en');
  const recoveries = results.flatMap(({ scene }) => scene?.recoveries ?? []).sort((a, b) => a - b);
  const seconds = (share: number) =>
    (
      (recoveries[Math.min(recoveries.length - 1, Math.floor(recoveries.length * share))] ?? 0) / 1000
    ).toFixed(1);
  const failed = results.filter(({ passed }) => !passed).map(({ title }) => title);
  const skipped = results.filter(({ impossible }) => impossible).length;
  const ran = results.length - skipped;
  return [
    '',
    `acknowledged ${total('acknowledged')}, applied ${total('applied')}, lost ${total('lost')}, doubled ${total('doubled')}, out of order ${total('outOfOrder')}`,
    `without an answer or with 5xx ${total('unknown')}, of which applied ${total('unknownApplied')}; refused ${total('refused')}`,
    `recoveries ${recoveries.length}: median ${seconds(0.5)} s, longest ${seconds(1)} s`,
    `${ran - failed.length} of ${ran} passed${skipped > 0 ? `, ${skipped} not run` : ''}`,
    ...failed.map((title) => `FAILED ${title}`),
    '',
  ].join('\n');
}
