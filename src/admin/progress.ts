import path from 'node:path';
import { Presets, SingleBar } from 'cli-progress';
import type { Watcher } from '../platform/steps.ts';

interface Progress {
  advance(by: number): void;
  stop(): void;
}

/** Shows a progress bar on stderr. It is drawn only on a terminal, and never in logs or pipes. */
export function showProgress(total: number, nouns: string): Progress {
  const bar = new SingleBar(
    {
      format: `{bar} {value}/{total} ${nouns}, {eta_formatted} left`,
      stream: process.stderr,
      hideCursor: true,
    },
    Presets.shades_classic,
  );
  bar.start(total, 0);
  return { advance: (by) => bar.increment(by), stop: () => bar.stop() };
}

/** Shows a bar per step on stderr with rate and remaining time. Only on a terminal; removed when the step ends. */
export function showSteps(stream: NodeJS.WritableStream = process.stderr): Watcher {
  let bar: SingleBar | undefined;
  let [done, started] = [0, 0];
  let written: (value: number) => string = String;
  return {
    begin({ name, doing, of, total }) {
      written = of === 'bytes' ? (value) => `${(value / 1e6).toFixed(1)} MB` : (value) => `${value} rows`;
      [done, started] = [0, performance.now()];
      bar = new SingleBar(
        {
          format: `${path.basename(name)}: ${doing} {bar} {percentage}%, {done}, {rate}/s, {eta_formatted} left`,
          ...{ stream, hideCursor: true, etaBuffer: 50, clearOnComplete: true },
        },
        Presets.shades_classic,
      );
      bar.start(total, 0, { done: written(0), rate: written(0) });
    },
    move(more) {
      done += more;
      const rate = Math.round((done * 1000) / Math.max(1, performance.now() - started));
      bar?.update(done, { done: written(done), rate: written(rate) });
    },
    end() {
      bar?.stop();
      bar = undefined;
    },
  };
}

/** Shows a bar on stderr with rows, their rate and the remaining time. Only on a terminal. */
export function showRows(
  input: { name: string; length: number; read(): number },
  stream: NodeJS.WritableStream = process.stderr,
) {
  const bar = new SingleBar(
    {
      format: `${path.basename(input.name)} {bar} {percentage}%, {rows} rows, {rate}/s, {eta_formatted} left`,
      ...{ stream, hideCursor: true, etaBuffer: 50 },
    },
    Presets.shades_classic,
  );
  let [before, started] = [0, performance.now()];
  return {
    begin(rows: number): void {
      [before, started] = [rows, performance.now()];
      bar.start(input.length, 0, { rows, rate: 0 });
    },
    move(rows: number): void {
      const rate = Math.round(((rows - before) * 1000) / Math.max(1, performance.now() - started));
      bar.update(input.read(), { rows, rate });
    },
    stop: () => bar.stop(),
  };
}
