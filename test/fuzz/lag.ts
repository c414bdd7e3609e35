import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** An idle process that prints the longest event-loop lag of each second, in milliseconds. */
const BYSTANDER = `
const { monitorEventLoopDelay } = require('node:perf_hooks');
const histogram = monitorEventLoopDelay({ resolution: 10 });
histogram.enable();
setInterval(() => { console.log(histogram.max / 1e6); histogram.reset(); }, 1000);
`;

/**
 * Measures the longest event-loop lag of a web process, by its own metric, and of an idle process: on a busy
 * machine both
 * wait for a processor.
 */
export function watchLag(port: number) {
  const bystander = spawn(process.execPath, ['-e', BYSTANDER], { stdio: ['ignore', 'pipe', 'ignore'] });
  let idle = 0;
  createInterface(bystander.stdout).on('line', (line) => {
    idle = Math.max(idle, Number(line));
  });
  let longest = 0;
  const p99s: number[] = [];

  async function measure(): Promise<void> {
    const page = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const read = (name: string) => Number(new RegExp(`^${name} (\\S+)`, 'm').exec(page)?.[1] ?? 0) * 1000;
    longest = Math.max(longest, read('nodejs_eventloop_lag_max_seconds'));
    p99s.push(read('nodejs_eventloop_lag_p99_seconds'));
  }

  const timer = setInterval(() => void measure().catch(() => {}), 1000);
  return {
    /** Stops the measurement and returns its results in milliseconds. */
    async stop() {
      clearInterval(timer);
      await measure();
      bystander.kill('SIGKILL');
      p99s.sort((a, b) => a - b);
      return { longest, usualP99: p99s[p99s.length >> 1]!, bystander: idle };
    },
  };
}
