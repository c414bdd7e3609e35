import { DateTime } from 'luxon';
import { type Html, html } from '../platform/html.ts';
import { grouped } from '../platform/numbers.ts';

/** What one day adds to a bar; several of a day stand on each other. */
export interface DayValue {
  /** ISO 8601, in UTC. */
  day: string;
  value: number;
}

/** The drawing is stretched to the width that there is: these are units of its own. */
const WIDTH = 600;
const HEIGHT = 120;
const GAP = 0.25;

/**
 * Bars by day, up to today, drawn on the server. Beside it a table has to stand for whoever does not see it: the drawing
 * says its largest day, and its days, in words.
 *
 * @param days bars; days without a value have none
 */
export function dailyChart(name: string, values: readonly DayValue[], { days }: { days: number }): Html {
  const today = DateTime.utc().startOf('day');
  const sums = new Map<string, number>();
  for (const { day, value } of values) sums.set(day, (sums.get(day) ?? 0) + value);
  const bars = Array.from({ length: days }, (_, index) => {
    const day = today.minus({ days: days - 1 - index }).toISODate();
    return { day, value: sums.get(day) ?? 0 };
  });
  const most = bars.reduce((before, bar) => (bar.value > before.value ? bar : before));
  const step = WIDTH / days;
  const drawn = bars.map(({ day, value }, index) => {
    // Whatever there is can be seen.
    const height = value === 0 ? 0 : Math.max(2, (value / Math.max(1, most.value)) * HEIGHT);
    const [x, y] = [index * step + (step * GAP) / 2, HEIGHT - height].map((one) => one.toFixed(2)) as [
      string,
      string,
    ];
    return html`<rect class="bar" x="${x}" y="${y}" width="${(step * (1 - GAP)).toFixed(2)}" height="${height.toFixed(2)}"><title>${day}: ${grouped(value)}</title></rect>`;
  });
  const said =
    most.value === 0
      ? `none from ${bars[0]!.day} to ${bars.at(-1)!.day}`
      : `from ${bars[0]!.day} to ${bars.at(-1)!.day}, most on ${most.day}: ${grouped(most.value)}`;
  return html`<figure class="chart card"><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${name}, ${said}">${drawn}</svg>
<figcaption><span>${bars[0]!.day}</span><span>${name}; at most ${grouped(most.value)} a day</span><span>${bars.at(-1)!.day}</span></figcaption></figure>`;
}
