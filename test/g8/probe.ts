import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { Figures, ProbeOptions } from './figures.ts';

/** A neighbour in a process of its own, so that what the test does with its requests is not measured. */
export async function startProbe(options: ProbeOptions) {
  const child = fork('dist/test/g8/probe-main.js', {
    env: { ...process.env, PROBE: JSON.stringify(options) },
  });
  await once(child, 'message');
  return {
    /** What it met since the last time, when all that was accepted before has been applied. */
    async figures(): Promise<Figures> {
      child.send('figures');
      const [figures] = await once(child, 'message');
      return figures as Figures;
    },
    stop: () => void child.kill('SIGKILL'),
  };
}

export type Probe = Awaited<ReturnType<typeof startProbe>>;
