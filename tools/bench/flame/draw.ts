import escapeHtml from 'escape-html';
import { drawingStyle } from '../drawing-style.ts';
import type { Origin } from './frame-name.ts';
import type { Frame } from './profile.ts';

const WIDTH = 1200;
const MARGIN = 10;
const HEAD = 62;
const ROW = 17;
const LETTER = 6.7;
const FONT = 11;

/** Share of the total time below which a frame is omitted. */
const MIN_SHARE = 0.003;

const origins: Record<Origin, string> = {
  ours: 'Penstock',
  package: 'packages',
  node: "Node's JavaScript",
  engine: 'V8 and native code',
};

const colours = `
.ours{fill:#f2a65a}.package{fill:#7fb3d5}.node{fill:#a9cf8f}.engine{fill:#c3c0cc}
.frame rect{stroke:var(--paper);stroke-width:.6}.frame text{fill:#1b1b1b}`;

/**
 * Draws a flame graph. The width of a frame is its share of the processor time. A frame is above its caller,
 * and the frames of one caller are sorted by name.
 *
 * @param title description of the measurement
 */
export function drawFlames(root: Frame, title: string): string {
  const rows = depthOf(root, root.total);
  const height = HEAD + rows * ROW + MARGIN;
  const frames: string[] = [];
  draw(root, MARGIN, 0);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escapeHtml(title)}">
<style>${drawingStyle(FONT)}${colours}</style>
<rect class="paper" width="100%" height="100%"/>
<text class="title" x="${MARGIN}" y="24">${escapeHtml(title)}</text>
${legend()}
${frames.join('\n')}
</svg>
`;

  function draw(frame: Frame, x: number, depth: number): void {
    const width = (frame.total / root.total) * (WIDTH - 2 * MARGIN);
    const y = height - MARGIN - (depth + 1) * ROW;
    const hint = `${frame.name}: ${percent(frame.total)}, ${percent(frame.self)} in itself`;
    const text = fitting(frame.name, width);
    frames.push(
      `<g class="frame"><title>${escapeHtml(hint)}</title><rect class="${frame.origin}" x="${round(x)}" y="${y}" width="${round(width)}" height="${ROW - 1}"/>${
        text && `<text x="${round(x + 3)}" y="${y + 12}">${escapeHtml(text)}</text>`
      }</g>`,
    );
    let left = x;
    for (const child of visibleChildren(frame, root.total)) {
      draw(child, left, depth + 1);
      left += (child.total / root.total) * (WIDTH - 2 * MARGIN);
    }
  }

  function percent(microseconds: number): string {
    return `${((microseconds / root.total) * 100).toFixed(1)} %`;
  }
}

function visibleChildren(frame: Frame, all: number): Frame[] {
  return [...frame.children.values()]
    .filter(({ total }) => total / all >= MIN_SHARE)
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

function depthOf(frame: Frame, all: number): number {
  return 1 + Math.max(0, ...visibleChildren(frame, all).map((child) => depthOf(child, all)));
}

/** Returns as much of a name as fits, or an empty text if fewer than three letters fit. */
function fitting(name: string, width: number): string {
  const maxLetters = Math.floor((width - 5) / LETTER);
  if (name.length <= maxLetters) return name;
  return maxLetters < 3 ? '' : `${name.slice(0, maxLetters - 1)}…`;
}

function legend(): string {
  let x = MARGIN;
  return Object.entries(origins)
    .map(([origin, text]) => {
      const entry = `<rect class="${origin}" x="${x}" y="36" width="12" height="12"/><text x="${x + 17}" y="46">${text}</text>`;
      x += 40 + text.length * LETTER;
      return entry;
    })
    .join('');
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
