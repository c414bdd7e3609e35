import escapeHtml from 'escape-html';
import { drawingStyle } from '../drawing-style.ts';
import { median } from '../figure.ts';
import type { Results } from '../results.ts';
import { linearScale } from './scale.ts';

const WIDTH = 900;
const LEFT = 480;
const RIGHT = WIDTH - 140;
const TOP = 52;
const STEP = 44;

/** Result of one traffic shape, as medians over the rounds. */
export interface ShapeFigure {
  what: string;
  /** Objects applied per second. */
  rate: number;
  /**
   * Processor time of web, worker, Postgres and Redis per object in microseconds; undefined without /proc.
   */
  cost: number | undefined;
  acceptP50: number;
  acceptP99: number;
}

const PARTS = ['web', 'worker', 'postgres', 'redis'];

/** Returns the shapes of a record in its order. */
export function readShapes({ rows }: Pick<Results, 'rows'>): ShapeFigure[] {
  return Object.entries(rows).flatMap(([name, { what, median: rate, rounds }]) => {
    if (!name.startsWith('shape-')) return [];
    const of = (member: string) => median(rounds.map(({ detail }) => detail[member] ?? Number.NaN));
    const costs = PARTS.map((part) => of(`cpu_us_${part}`));
    const cost = costs.some(Number.isNaN) ? undefined : costs.reduce((sum, part) => sum + part, 0);
    return [{ what, rate, cost, acceptP50: of('accept_p50_ms'), acceptP99: of('accept_p99_ms') }];
  });
}

/** Draws a bar for each shape with objects applied per second and the cost of an object. */
export function drawShapes(shapes: ShapeFigure[], title: string): string {
  const x = linearScale(Math.max(...shapes.map(({ rate }) => rate)), LEFT, RIGHT);
  const height = TOP + STEP * shapes.length + 36;
  const foot = TOP + STEP * shapes.length;
  const bars = shapes.map(({ what, rate, cost }, index) => {
    const y = TOP + STEP * index;
    const end = Math.round(x.positionOf(rate) * 10) / 10;
    const text = `${whole(rate)}/s${cost === undefined ? '' : ` · ${cost.toFixed(1)} µs`}`;
    return [
      `<text class="end" x="${LEFT - 10}" y="${y + 20}">${escapeHtml(what)}</text>`,
      `<rect class="bar" x="${LEFT}" y="${y + 4}" width="${Math.round((end - LEFT) * 10) / 10}" height="24"/>`,
      `<text x="${end + 8}" y="${y + 20}">${text}</text>`,
    ].join('');
  });
  const ticks = x.ticks.map(
    (tick) =>
      `<line class="grid" x1="${x.positionOf(tick)}" x2="${x.positionOf(tick)}" y1="${TOP}" y2="${foot}"/><text class="middle" x="${x.positionOf(tick)}" y="${foot + 20}">${whole(tick)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escapeHtml(title)}">
<style>${drawingStyle(12)}.bar{fill:#2da44e}.grid{stroke:var(--faint);stroke-width:1}.end{text-anchor:end}.middle{text-anchor:middle}</style>
<rect class="paper" width="100%" height="100%"/>
<text class="title" x="20" y="26">${escapeHtml(title)}</text>
${ticks.join('')}
${bars.join('\n')}
</svg>
`;
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}
