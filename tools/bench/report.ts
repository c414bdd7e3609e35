import type { Figure } from './figure.ts';
import type { Bounds, Results } from './results.ts';

const COST = 'cpu_us_';
const PEAK = 'rss_mb_';
const GROWTH = 'mb_per_minute_';

/** Formats one measurement while the bench runs. */
export function describeFigure(round: number, name: string, { value, unit, detail }: Figure): string {
  const parts = [`round ${round}  ${name.padEnd(16)} ${formatValue(value, unit).padStart(12)}`];
  if (detail.accept_p50_ms) {
    parts.push(`accept p50 ${detail.accept_p50_ms.toFixed(1)} p99 ${detail.accept_p99_ms!.toFixed(1)} ms`);
  }
  if (detail.idle_fsync_ms) parts.push(`(an idle fsync ${detail.idle_fsync_ms.toFixed(2)} ms)`);
  if (detail.p50_ratio !== undefined)
    parts.push(
      `without: p50 ${detail.alone_accept_p50_ms!.toFixed(1)} p99 ${detail.alone_accept_p99_ms!.toFixed(1)} ms; p50 ${detail.p50_ratio.toFixed(2)} x` +
        ` at ${detail.requests_per_second!.toFixed(0)} requests/s, ${detail.imported_per_second!.toFixed(0)} rows/s imported`,
    );
  if (detail.full_per_second)
    parts.push(`${detail.per_second!.toFixed(0)} over ${detail.full_per_second.toFixed(0)} objects/s`);
  if (detail.streamLagSeconds !== undefined)
    parts.push(`destinations had it ${detail.streamLagSeconds.toFixed(1)} s later`);
  if (detail.readable_p99_ms) {
    const half = detail.readable_p50_ms === undefined ? '' : `p50 ${detail.readable_p50_ms.toFixed(1)} `;
    parts.push(`readable ${half}p99 ${detail.readable_p99_ms.toFixed(1)} ms`);
  }
  for (const state of ['alone', 'busy', 'beside']) {
    const readable = detail[`${state}_readable_p99_ms`];
    if (readable === undefined || detail[`${state}_queued_p99_ms`] === undefined) continue;
    const stages = ['accept', 'arrive', 'pack', 'queued', 'applied', 'readable'].map((stage) => {
      const [p50, p99] = ['p50', 'p99'].map((which) => detail[`${state}_${stage}_${which}_ms`]!.toFixed(0));
      return `${stage} ${p50} ${p99}`;
    });
    parts.push(
      `\n    ${state.padEnd(7)} p50 p99 ms: ${stages.join(' · ')} (client's lag ${detail[`${state}_client_lag_p99_ms`]!.toFixed(0)})`,
    );
  }
  if (detail.readable_over_busy)
    parts.push(
      `\n    over busy cores ${detail.readable_over_busy.toFixed(2)} (answer ${detail.accept_over_busy!.toFixed(2)}), answer over alone ${detail.accept_ratio!.toFixed(2)}; flood ${detail.flood_accepted_per_second!.toFixed(0)} accepted/s, ${detail.flood_applied_per_second!.toFixed(0)} applied/s`,
    );
  const peaks = Object.entries(detail).filter(([key]) => key.startsWith(PEAK));
  if (peaks.length > 0) {
    parts.push(`peak MB ${peaks.map(([key, peak]) => `${key.slice(PEAK.length)} ${peak}`).join(', ')}`);
  }
  if (detail.live_p99_ms) {
    parts.push(
      `live readable p50 ${detail.live_p50_ms!.toFixed(0)} p99 ${detail.live_p99_ms.toFixed(0)} max ${detail.live_max_ms!.toFixed(0)} ms` +
        ` (without: p50 ${detail.alone_p50_ms!.toFixed(0)} p99 ${detail.alone_p99_ms!.toFixed(0)})`,
    );
  }
  const grown = Object.entries(detail).filter(([key]) => key.startsWith(GROWTH));
  for (const [key, perMinute] of grown) {
    const name = key.slice(GROWTH.length);
    const [warm, last] = [detail[`warm_mb_${name}`], detail[`last_mb_${name}`]];
    parts.push(`${name} ${warm} MB when warm, ${last} at the end, ${perMinute} MB a minute`);
  }
  const costs = Object.entries(detail).filter(([key]) => key.startsWith(COST));
  if (costs.length > 0) {
    const each = costs.map(([key, value]) => `${key.slice(COST.length)} ${value}`);
    const sum = costs.reduce((total, [, value]) => total + value, 0);
    parts.push(`CPU µs per row ${sum.toFixed(1)} (${each.join(', ')})`);
  }
  if (detail.wal_bytes_per_row) parts.push(`WAL ${detail.wal_bytes_per_row} B per row`);
  if (detail.others_cores) parts.push(`others used ${detail.others_cores} cores`);
  return `${parts.join('  ')}\n`;
}

/** Formats the summary: medians, spreads, ratios, and the machine and settings. */
export function describeResults(results: Results, { floors, ceilings }: Bounds): string {
  const { machine, rows, ratios, costs } = results;
  const versions = Object.entries(machine.versions).map(([name, version]) => `${name} ${version}`);
  const settings = Object.entries(machine.postgres_settings).map(([name, value]) => `${name} ${value}`);
  const lines = ['', `${'row'.padEnd(20)}${'median'.padStart(12)}  spread`];
  for (const [name, { median, unit, spread, what }] of Object.entries(rows)) {
    lines.push(
      `${name.padEnd(20)}${formatValue(median, unit).padStart(12)}  ±${percent(spread).padEnd(6)} ${what}`,
    );
  }
  lines.push('', `${'ratio'.padEnd(20)}${'median'.padStart(10)}  spread`);
  for (const [name, { median, spread }] of Object.entries(ratios)) {
    const floor = floors[name] === undefined ? '' : ` floor ${floors[name]}`;
    lines.push(`${name.padEnd(20)}${median.toFixed(2).padStart(10)}  ±${percent(spread).padEnd(6)}${floor}`);
  }
  lines.push('', `${'processor time'.padEnd(20)}${'median'.padStart(10)}  spread`);
  for (const [name, { median, spread }] of Object.entries(costs)) {
    const ceiling = ceilings[name] === undefined ? '' : ` ceiling ${ceilings[name]}`;
    lines.push(
      `${name.padEnd(20)}${median.toFixed(2).padStart(10)}  ±${percent(spread).padEnd(6)}${ceiling}`,
    );
  }
  lines.push(
    '',
    `${machine.cores} cores of ${machine.processor}, ${machine.memory_gb} GB, ${machine.system}`,
    versions.join(', '),
    `Postgres: ${settings.join(', ')}`,
    `Redis: ${machine.redis_settings}`,
    `settings: ${JSON.stringify(results.settings)}`,
  );
  return `${lines.join('\n')}\n`;
}

function formatValue(value: number, unit: Figure['unit']): string {
  const digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return unit === '/s' ? `${whole(value)}/s` : `${value.toFixed(digits)} ${unit}`;
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}

function percent(share: number): string {
  return `${Math.round(share * 100)}%`;
}
