import { readFileSync } from 'node:fs';
import type { Service } from './lifecycle.ts';
import { poll } from './poll.ts';

const LOOK_MS = 250;

/** Of what was seen before, how much counts beside a new look: a second or so is told of. */
const KEPT = 0.75;

/** Nanoseconds that the main thread has run, and has waited for a processor. Linux alone tells them. */
const SCHEDULED = '/proc/self/schedstat';

/**
 * How long this process's thread has to wait for a processor, as the scheduler counts it. Of the time in which it
 * wanted to run, it is the part in which others did. On a machine with an idle core it is near 0, however busy the
 * process itself is.
 * @param read gives the text of the scheduler's figures; tests have others
 */
export function watchProcessorWait(read: () => string = () => readFileSync(SCHEDULED, 'utf8')) {
  let [ran, waited] = [0, 0];
  let before = figures();

  function figures(): [number, number] | undefined {
    try {
      const [running, waiting] = read().split(' ').map(Number);
      return [running!, waiting!];
    } catch {
      return undefined;
    }
  }

  function look(): void {
    const now = figures();
    if (now && before) {
      ran = ran * KEPT + now[0] - before[0];
      waited = waited * KEPT + now[1] - before[1];
    }
    before = now;
  }

  const looks = poll(LOOK_MS, look);
  const service: Service = { name: 'processor wait', stop: () => looks.stop() };
  return {
    ...service,
    look,
    /** From 0 to 1; undefined where the system does not tell. */
    share: (): number | undefined => (before && ran + waited > 0 ? waited / (ran + waited) : undefined),
  };
}
