import { Gauge, type Registry } from 'prom-client';

/** Share of a mark that its value has to fall back to: at the mark itself the answers would change to and fro. */
const BACK = 0.9;

/** Something of which too much means that no more work is taken. */
export interface HighWater {
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
 * Holds values against their marks. Past one, work is refused until the value has come back to nine tenths of the
 * mark, by itself.
 */
export function watchMarks(highWaters: HighWater[], registry: Registry) {
  const over = new Set<HighWater>();

  function isOver(highWater: HighWater): boolean {
    const limit = over.has(highWater) ? highWater.mark * BACK : highWater.mark;
    if (highWater.value() > limit) over.add(highWater);
    else over.delete(highWater);
    return over.has(highWater);
  }

  function gauge(name: string, help: string, read: (highWater: HighWater) => number): void {
    new Gauge({
      name,
      help,
      labelNames: ['of', 'unit'],
      registers: [registry],
      collect() {
        for (const highWater of highWaters)
          this.set({ of: highWater.name, unit: highWater.unit }, read(highWater));
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
    overload(through: 'queue' | 'store'): string | undefined {
      let reason: string | undefined;
      for (const highWater of highWaters) {
        // Each is looked at: what nobody looks at stays over its mark.
        if (!isOver(highWater) || (highWater.ofQueue && through === 'store')) continue;
        reason ??= `${highWater.name} is ${rounded(highWater.value())} ${highWater.unit}, over its mark of ${highWater.mark}`;
      }
      return reason;
    },

    levels(): Record<string, Level> {
      return Object.fromEntries(
        highWaters.map((highWater) => {
          const { name, mark, unit, value } = highWater;
          return [name, { value: rounded(value()), mark, unit, over: isOver(highWater) }];
        }),
      );
    },
  };
}

export type Marks = ReturnType<typeof watchMarks>;

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
