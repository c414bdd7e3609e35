import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { Figures, ProbeOptions } from './figures.ts';

/** Starts the probe in a separate process, so that the load of the test process does not affect its figures. */
export async function startProbe(options: ProbeOptions) {
  const child = fork('dist/test/g8/probe-main.js', {
    env: { ...process.env, PROBE: JSON.stringify(options) },
  });
  await once(child, 'message');
  return {
    /** Waits until all earlier requests are applied, and returns the figures since the previous call. */
    async figures(): Promise<Figures> {
      child.send('figures');
      const [figures] = await once(child, 'message');
      return figures as Figures;
    },
    stop: () => void child.kill('SIGKILL'),
  };
}

export type Probe = Awaited<ReturnType<typeof startProbe>>;
