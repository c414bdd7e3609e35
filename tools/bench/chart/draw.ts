import escapeHtml from 'escape-html';
import { drawingStyle } from '../drawing-style.ts';
import type { CurvePoint } from './curve.ts';
import { linearScale, logScale, type Scale } from './scale.ts';

const WIDTH = 900;
const LEFT = 80;
const RIGHT = WIDTH - 40;
const TOP = { from: 84, to: 264 };
const BOTTOM = { from: 330, to: 560 };
const HEIGHT = 620;

interface Line {
  name: string;
  style: string;
  value(point: CurvePoint): number;
}

const rates: Line[] = [
  { name: 'offered', style: 'offered dashed', value: ({ offered }) => offered },
  { name: 'applied', style: 'applied', value: ({ applied }) => applied },
];

const times: Line[] = [
  { name: 'accept p50', style: 'accept', value: ({ acceptP50 }) => acceptP50 },
  { name: 'accept p99', style: 'accept dashed', value: ({ acceptP99 }) => acceptP99 },
  { name: 'readable p50', style: 'readable', value: ({ readableP50 }) => readableP50 },
  { name: 'readable p99', style: 'readable dashed', value: ({ readableP99 }) => readableP99 },
];

const colours = `
.line{fill:none;stroke-width:2}.dashed{stroke-dasharray:6 4}
.offered{stroke:#8b949e}.applied{stroke:#2da44e}.accept{stroke:#3b82f6}.readable{stroke:#e07b00}
circle{stroke:none}circle.offered{fill:#8b949e}circle.applied{fill:#2da44e}circle.accept{fill:#3b82f6}circle.readable{fill:#e07b00}
.grid{stroke:var(--faint);stroke-width:1}.end{text-anchor:end}.middle{text-anchor:middle}`;

/**
 * Draws throughput and latency over the offered load, one below the other. The axis of latency is
 * logarithmic.
 */
export function drawCurve(points: CurvePoint[], title: string): string {
  const x = linearScale(Math.max(...points.map(({ offered }) => offered)), LEFT, RIGHT);
  const maxRate = Math.max(...points.flatMap((point) => rates.map(({ value }) => value(point))));
  const rate = linearScale(maxRate, TOP.to, TOP.from);
  const allTimes = points.flatMap((point) => times.map(({ value }) => value(point)));
  const time = logScale(allTimes, BOTTOM.to, BOTTOM.from);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-label="${escapeHtml(title)}">
<style>${drawingStyle(12)}${colours}</style>
<rect class="paper" width="100%" height="100%"/>
<text class="title" x="${LEFT}" y="26">${escapeHtml(title)}</text>
${legend('objects/s', rates, TOP.from - 26)}
${axis(rate, whole)}
${across(x, TOP.to)}
${rates.map((line) => draw(line, x, rate)).join('\n')}
${legend('milliseconds, logarithmic', times, BOTTOM.from - 26)}
${axis(time, (tick) => (tick < 1 ? String(tick) : whole(tick)))}
${across(x, BOTTOM.to)}
${times.map((line) => draw(line, x, time)).join('\n')}
<text class="middle" x="${(LEFT + RIGHT) / 2}" y="${HEIGHT - 16}">objects/s offered, in requests of 75</text>
</svg>
`;

  function draw({ name, style, value }: Line, xs: Scale, ys: Scale): string {
    const marks = points.map((point) => ({
      x: round(xs.positionOf(point.offered)),
      y: round(ys.positionOf(value(point))),
      hint: `${point.share} % of full load, ${name}: ${format(value(point))}`,
    }));
    const path = `<polyline class="line ${style}" points="${marks.map((at) => `${at.x},${at.y}`).join(' ')}"/>`;
    const dots = marks.map(
      (at) => `<circle class="${style}" cx="${at.x}" cy="${at.y}" r="3.5"><title>${at.hint}</title></circle>`,
    );
    return path + dots.join('');
  }
}

function axis({ positionOf, ticks }: Scale, text: (value: number) => string): string {
  return ticks
    .map((tick) => {
      const y = round(positionOf(tick));
      return `<line class="grid" x1="${LEFT}" x2="${RIGHT}" y1="${y}" y2="${y}"/><text class="end" x="${LEFT - 8}" y="${y + 4}">${text(tick)}</text>`;
    })
    .join('');
}

function across({ positionOf, ticks }: Scale, y: number): string {
  return ticks
    .map((tick) => `<text class="middle" x="${round(positionOf(tick))}" y="${y + 18}">${whole(tick)}</text>`)
    .join('');
}

function legend(unit: string, lines: Line[], y: number): string {
  let x = LEFT;
  const entries = lines.map(({ name, style }) => {
    const entry = `<line class="line ${style}" x1="${x}" x2="${x + 28}" y1="${y}" y2="${y}"/><text x="${x + 34}" y="${y + 4}">${name}</text>`;
    x += 60 + name.length * 7.5;
    return entry;
  });
  return `${entries.join('')}<text class="end" x="${RIGHT}" y="${y + 4}">${unit}</text>`;
}

function format(value: number): string {
  return value < 100 ? value.toFixed(1) : whole(value);
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
