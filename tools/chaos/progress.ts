import { Presets, SingleBar } from 'cli-progress';

/** Shows a progress bar over the scenarios with the current activity on stderr if it is a terminal. */
export function createProgress(total: number) {
  const bar = new SingleBar(
    {
      format: '{bar} {value}/{total} {doing}',
      stream: process.stderr,
      hideCursor: true,
      clearOnComplete: true,
    },
    Presets.shades_classic,
  );
  let finished = 0;
  const start = () => bar.start(total, finished, { doing: '' });
  start();
  return {
    say: (doing: string): void => bar.update(finished, { doing }),
    /** Prints a line above the bar. */
    print(line: string): void {
      bar.stop();
      process.stdout.write(`${line}\n`);
      start();
    },
    /** Prints the result of a scenario. */
    done(text: string): void {
      finished++;
      bar.stop();
      process.stdout.write(text);
      if (finished < total) start();
    },
    stop: (): void => bar.stop(),
  };
}
