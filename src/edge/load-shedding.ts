import { Gauge, type Registry } from 'prom-client';

/** Share of a mark that its value has to fall back to: at the mark itself the answers would change to and fro. */
const BACK = 0.9;

/** A high-water mark, and what is held against it: too much of that, and no more work is taken. */
export interface HighWaterMark {
  /** As /metrics and /readyz name it. */
  name: string;
  mark: number;
  unit: string;
  /** Cheap: it is asked for by every request that would store something. */
  value(): number;
  /** Only what goes through the queue is refused; absent: whatever would store something. */
  ofQueue?: boolean;
}

/** One mark as /readyz shows it. */
export interface Level {
  value: number;
  mark: number;
  unit: string;
  over: boolean;
}

/**
 * Load shedding: holds values against their high-water marks. Past one, work is refused until the value has come back
 * to nine tenths of the mark by itself.
 */
export function createLoadShedding(marks: HighWaterMark[], registry: Registry) {
  const over = new Set<HighWaterMark>();

  function isOver(one: HighWaterMark): boolean {
    const limit = over.has(one) ? one.mark * BACK : one.mark;
    if (one.value() > limit) over.add(one);
    else over.delete(one);
    return over.has(one);
  }

  function gauge(name: string, help: string, read: (one: HighWaterMark) => number): void {
    new Gauge({
      name,
      help,
      labelNames: ['of', 'unit'],
      registers: [registry],
      collect() {
        for (const one of marks) this.set({ of: one.name, unit: one.unit }, read(one));
      },
    });
  }
  gauge('penstock_high_water_value', 'What is held against a high-water mark.', ({ value }) => value());
  gauge('penstock_high_water_mark', 'Past it, work is refused with 503.', ({ mark }) => mark);
  gauge('penstock_high_water_over', '1 while work is refused for it.', (one) => (isOver(one) ? 1 : 0));

  return {
    /**
     * Why nothing more may be stored now, if so.
     * @param through by what it would be stored
     */
    reason(through: 'queue' | 'store'): string | undefined {
      let found: string | undefined;
      for (const one of marks) {
        // Each is looked at: what nobody looks at stays over its mark.
        if (!isOver(one) || (one.ofQueue && through === 'store')) continue;
        found ??= `${one.name} is ${rounded(one.value())} ${one.unit}, over its mark of ${one.mark}`;
      }
      return found;
    },

    levels(): Record<string, Level> {
      return Object.fromEntries(
        marks.map((one) => {
          const { name, mark, unit, value } = one;
          return [name, { value: rounded(value()), mark, unit, over: isOver(one) }];
        }),
      );
    },
  };
}

export type LoadShedding = ReturnType<typeof createLoadShedding>;

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
