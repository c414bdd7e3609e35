import { grouped } from '../../platform/format.ts';
import { html, type Part } from '../../platform/html.ts';
import { secondsOf } from '../../resources/runs.ts';
import type { SelectedRun } from '../../store/sync-lists.ts';
import { barChart } from '../chart.ts';
import { duration } from '../layout.ts';

/** Renders duration and rows of the finished runs, oldest on the left; undefined if no run has finished. */
export function runCharts(runs: readonly SelectedRun[]): Part {
  const ended = runs.filter(({ finishedAt }) => finishedAt !== null).reverse();
  if (ended.length === 0) return undefined;
  const of = ({ startedAt }: SelectedRun) => `${startedAt.slice(0, 16).replace('T', ' ')} UTC`;
  return html`<div class="charts">${barChart('Duration of the runs', {
    parts: ['Duration'],
    bars: ended.map((run) => ({ of: of(run), values: [secondsOf(run)] })),
    show: duration,
  })}${barChart('Rows of the runs', {
    parts: ['synced', 'failed'],
    bars: ended.map((run) => ({ of: of(run), values: [run.rowsSynced, run.rowsFailed] })),
    show: grouped,
  })}</div>`;
}
