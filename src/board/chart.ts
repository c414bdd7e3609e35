import { DateTime } from 'luxon';
import { grouped } from '../platform/format.ts';
import { type Html, html } from '../platform/html.ts';
import { count } from './layout.ts';

/** A value of one day. Values of the same day are summed. */
interface DayValue {
  /** UTC date in ISO 8601, for example 2026-01-31. */
  day: string;
  value: number;
}

/** Size of the drawing in its own units: the browser stretches it to the available width. */
const WIDTH = 600;
const HEIGHT = 120;
const GAP = 0.25;
const MIN_BAR_HEIGHT = 2;

/**
 * Draws a bar for each day up to today, on the server. Screen readers read the period and the day with the largest
 * value; the page must also show a table.
 *
 * @param days number of bars; a day without a value gets an empty bar
 */
export function dailyChart(name: string, values: readonly DayValue[], { days }: { days: number }): Html {
  const today = DateTime.utc().startOf('day');
  const sums = new Map<string, number>();
  for (const { day, value } of values) sums.set(day, (sums.get(day) ?? 0) + value);
  const bars = Array.from({ length: days }, (_, index) => {
    const day = today.minus({ days: days - 1 - index }).toISODate();
    return { day, value: sums.get(day) ?? 0 };
  });
  const largest = bars.reduce((before, bar) => (bar.value > before.value ? bar : before));
  const drawn = drawBars(
    bars.map(({ day, value }) => ({ title: `${day}: ${grouped(value)}`, parts: [value] })),
    largest.value,
  );
  const description =
    largest.value === 0
      ? `none from ${bars[0]!.day} to ${bars.at(-1)!.day}`
      : `from ${bars[0]!.day} to ${bars.at(-1)!.day}, most on ${largest.day}: ${grouped(largest.value)}`;
  return html`<figure class="chart card"><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${name}, ${description}">${drawn}</svg>
<figcaption><span>${bars[0]!.day}</span><span>${name}; at most ${grouped(largest.value)} a day</span><span>${bars.at(-1)!.day}</span></figcaption></figure>`;
}

/** A bar: its tooltip, and its parts from bottom to top. */
interface Bar {
  title: string;
  parts: readonly number[];
}

function drawBars(bars: readonly Bar[], top: number): Html[] {
  const step = WIDTH / bars.length;
  return bars.flatMap(({ title, parts }, index) => {
    const room = HEIGHT - MIN_BAR_HEIGHT * (parts.length - 1);
    let y = HEIGHT;
    return parts.map((value, part) => {
      // A small value would otherwise be invisible.
      const height = value === 0 ? 0 : Math.max(MIN_BAR_HEIGHT, (value / top) * room);
      y -= height;
      return html`<rect class="bar bar-${part}" x="${(index * step + (step * GAP) / 2).toFixed(2)}" y="${y.toFixed(2)}" width="${(step * (1 - GAP)).toFixed(2)}" height="${height.toFixed(2)}"><title>${title}</title></rect>`;
    });
  });
}

interface BarChart {
  /** Names of each bar's parts, from bottom to top. */
  parts: readonly string[];
  /** Label and part values of each bar, oldest first; at least one bar. */
  bars: readonly { of: string; values: readonly number[] }[];
  /** Formats a value with its unit. */
  show(value: number): string;
}

/**
 * Draws stacked bars on the server, the oldest on the left. Screen readers read the latest and the largest bar; the
 * page must also show a table.
 */
export function barChart(name: string, { parts, bars, show }: BarChart): Html {
  const sumOf = ({ values }: { values: readonly number[] }) => values.reduce((sum, value) => sum + value, 0);
  const describeBar = ({ of, values }: BarChart['bars'][0]) =>
    `${of}: ${values.map((value, index) => `${show(value)}${parts.length > 1 ? ` ${parts[index]}` : ''}`).join(', ')}`;
  const largest = bars.reduce((before, bar) => (sumOf(bar) > sumOf(before) ? bar : before));
  const drawn = drawBars(
    bars.map((bar) => ({ title: describeBar(bar), parts: bar.values })),
    sumOf(largest),
  );
  const description = `${count(bars.length, 'bar')}, the latest ${describeBar(bars.at(-1)!)}; the largest ${describeBar(largest)}`;
  return html`<figure class="chart card"><h3>${name}</h3><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${name}. ${description}">${drawn}</svg>
<figcaption><span>${bars[0]!.of}</span>${parts.map((part, index) => html`<span>${parts.length > 1 && html`<span class="key bar-${index}" aria-hidden="true"></span>`}${part}, at most ${show(Math.max(...bars.map(({ values }) => values[index]!)))}</span>`)}<span>${bars.at(-1)!.of}</span></figcaption></figure>`;
}

/** A line of a chart. A point without a known value is undefined and leaves a gap. */
interface Line {
  name: string;
  values: readonly (number | undefined)[];
}

interface LineChart {
  lines: readonly Line[];
  /** Times of the points, in epoch milliseconds. */
  times: readonly number[];
  /** Format of the times below the chart. */
  axis: 'time' | 'day';
  /** Formats a value with its unit. */
  show(value: number): string;
  /** Minimum value at the top of the chart, so that very small values look small. */
  minTop: number;
}

/**
 * Draws lines over time on the server. Screen readers read the highest and the latest value of each line; the page must
 * also show a table. A script in the browser shows the values of the point under the pointer.
 */
export function lineChart(name: string, { lines, times, axis, show, minTop }: LineChart): Html {
  const definedValues = lines.map(({ values }) => values.filter((value) => value !== undefined));
  const top = Math.max(minTop, ...definedValues.flat());
  const legend = lines.map((line, index) => {
    const values = definedValues[index]!;
    const latest = line.values.at(-1);
    const description =
      values.length === 0
        ? 'not known'
        : `latest ${latest === undefined ? 'not known' : show(latest)}, highest ${show(Math.max(...values))}`;
    return { name: line.name, description };
  });
  const missing = times.filter((_, index) => lines.every(({ values }) => values[index] === undefined)).length;
  const gaps = missing > 0 ? `; no figures for ${missing} of ${times.length} points` : '';
  const description = `${legend.map((one) => `${one.name}: ${one.description}`).join('; ')}${gaps}`;
  const step = ((times[1] ?? 0) - (times[0] ?? 0)) / 1000;
  return html`<figure class="chart lines card" data-chart-from="${times[0] ?? 0}" data-chart-step="${step}"><h3>${name} <span class="point" data-point aria-hidden="true"></span></h3>
<div class="plot"><span class="top">${show(top)}</span><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${name}. ${description}">${gapsOf(lines, times.length)}${TICKS}${lines.map(
    ({ values }, index) =>
      html`<path class="line-${index}" d="${pathOf(values, top)}" data-values="${values.map((value) => (value === undefined ? '' : show(value))).join('|')}"/>`,
  )}</svg></div>
${axisOf(times, axis)}
<figcaption>${legend.map((one, index) => html`<span><span class="key line-${index}" aria-hidden="true"></span>${one.name}: ${one.description}</span>`)}</figcaption></figure>`;
}

/** Number of parts of the x axis. Each begins with a vertical line and its time. */
const PARTS = 4;

const TICKS = Array.from(
  { length: PARTS },
  (_, part) =>
    html`<line class="tick" x1="${(WIDTH * part) / PARTS}" x2="${(WIDTH * part) / PARTS}" y1="0" y2="${HEIGHT}"/>`,
);

/** Renders the x axis in UTC. A script converts its times to the reader's time zone. */
function axisOf(times: readonly number[], axis: LineChart['axis']): Html {
  const step = (times[1] ?? 0) - (times[0] ?? 0);
  const labels = Array.from({ length: PARTS }, (_, part) => {
    const iso = new Date((times[0] ?? 0) + (step * times.length * part) / PARTS).toISOString();
    const text = axis === 'day' ? iso.slice(5, 10) : iso.slice(11, 16);
    return html`<time datetime="${iso}" data-axis="${axis}">${text}</time>`;
  });
  return html`<div class="axis" aria-hidden="true">${labels}</div>`;
}

/** Draws a single line for a table cell. Hidden from screen readers, because the cell also has the numbers. */
export function sparkline(values: readonly (number | undefined)[]): Html {
  const top = Math.max(1, ...values.filter((value) => value !== undefined));
  return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true"><path class="line-0" d="${pathOf(values, top)}"/></svg>`;
}

/**
 * Builds an SVG path with each point in the middle of its interval. A point without neighbors spans its whole interval.
 */
function pathOf(values: readonly (number | undefined)[], top: number): string {
  const step = WIDTH / Math.max(1, values.length);
  let path = '';
  for (const [index, value] of values.entries()) {
    if (value === undefined) continue;
    const y = (HEIGHT - 1 - (value / top) * (HEIGHT - 2)).toFixed(1);
    const x = ((index + 0.5) * step).toFixed(1);
    const begins = values[index - 1] === undefined;
    if (begins && values[index + 1] === undefined)
      path += `M${(index * step).toFixed(1)} ${y}H${((index + 1) * step).toFixed(1)}`;
    else path += `${begins ? 'M' : 'L'}${x} ${y}`;
  }
  return path;
}

/** Shades the intervals in which no line has a value, so that they do not look like zero. */
function gapsOf(lines: readonly Line[], count: number): Html[] {
  const step = WIDTH / Math.max(1, count);
  const drawn: Html[] = [];
  let from: number | undefined;
  for (let index = 0; index <= count; index++) {
    const isGap = index < count && lines.every(({ values }) => values[index] === undefined);
    if (isGap) from ??= index;
    else if (from !== undefined) {
      drawn.push(
        html`<rect class="gap" x="${(from * step).toFixed(1)}" y="0" width="${((index - from) * step).toFixed(1)}" height="${HEIGHT}"/>`,
      );
      from = undefined;
    }
  }
  return drawn;
}
