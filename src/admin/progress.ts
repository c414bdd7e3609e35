import path from 'node:path';
import { Presets, SingleBar } from 'cli-progress';
import type { Watcher } from '../platform/steps.ts';

export interface Progress {
  advance(by: number): void;
  stop(): void;
}

/** A bar on stderr, drawn only on a terminal: logs and pipes get none. */
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

/** A bar on stderr for each step, drawn only on a terminal, with its rate and the time that is left; gone when it is over. */
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

/** A bar on stderr, drawn only on a terminal, with rows, their rate, and the time that is left. */
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
