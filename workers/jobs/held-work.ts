import { Gauge, type Registry } from 'prom-client';

/** A job that has made no progress for longer than its limit. */
interface OverdueWork {
  kind: string;
  id: string;
  /** Seconds since its last progress. */
  seconds: number;
}

interface Held {
  kind: string;
  id: string;
  limitMs: number;
  /** Time of the last progress, in `performance.now()` milliseconds. */
  progressAt: number;
}

/**
 * Tracks the active jobs of a process, each with the maximum time without progress. A job that hangs keeps memory, a
 * connection or a concurrency slot: `/readyz` and a metric report it.
 */
export class HeldWork {
  readonly #held = new Set<Held>();

  constructor(registry?: Registry) {
    if (!registry) return;
    const overdue = () => this.overdue();
    new Gauge({
      name: 'penstock_sync_overdue_jobs',
      help: 'Jobs of this process that have made no progress for longer than their limit, by kind.',
      labelNames: ['kind'],
      registers: [registry],
      collect() {
        this.reset();
        for (const kind of kinds) this.set({ kind }, 0);
        for (const { kind } of overdue()) this.inc({ kind });
      },
    });
  }

  begin(kind: HeldKind, id: string, limitMs: number): { progress(): void; end(): void } {
    const held: Held = { kind, id, limitMs, progressAt: performance.now() };
    this.#held.add(held);
    return {
      progress: () => {
        held.progressAt = performance.now();
      },
      end: () => void this.#held.delete(held),
    };
  }

  /** Returns the jobs without progress for longer than their limit; the job with the oldest progress comes first. */
  overdue(now = performance.now()): OverdueWork[] {
    return [...this.#held]
      .filter(({ limitMs, progressAt }) => now - progressAt > limitMs)
      .sort((one, other) => one.progressAt - other.progressAt)
      .map(({ kind, id, progressAt }) => ({ kind, id, seconds: Math.round((now - progressAt) / 1000) }));
  }
}

const kinds = ['stream delivery', 'segment export', 'export callback'] as const;
type HeldKind = (typeof kinds)[number];
