import { Presets, SingleBar } from 'cli-progress';

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
