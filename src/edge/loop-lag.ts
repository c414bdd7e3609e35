import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Service } from '../lifecycle.ts';

/** Milliseconds between two looks. */
const LOOK = 250;

/** Milliseconds between two samples; the histogram counts them as delay. */
const RESOLUTION = 10;

/** How long what is due waits for its turn in this process: a mean, since a single long turn is over when it is seen. */
export function watchLoopLag() {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION });
  histogram.enable();
  let lag = 0;
  let due = performance.now() + LOOK;

  const timer = setInterval(() => {
    const now = performance.now();
    const mean = histogram.count > 0 ? histogram.mean / 1e6 - RESOLUTION : 0;
    // A turn that has just ended may not be in the histogram yet.
    lag = Math.max(0, mean, now - due);
    due = now + LOOK;
    histogram.reset();
  }, LOOK);
  timer.unref();

  const service: Service = {
    name: 'event loop',
    async stop() {
      clearInterval(timer);
      histogram.disable();
    },
  };
  return { ...service, /** Milliseconds, at most 250 ms ago. */ lag: () => lag };
}
