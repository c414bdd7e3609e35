import { Gauge, type Registry } from 'prom-client';

/** Work that has made no progress for longer than it may. */
export interface OverdueWork {
  kind: string;
  id: string;
  /** Since its last progress. */
  seconds: number;
}

interface Held {
  kind: string;
  id: string;
  limitMs: number;
  /** By `performance.now()`. */
  progressAt: number;
}

/**
 * The work that a process has in hand, each with the time that it may take without progress. Work that hangs holds
 * memory, a connection or a place: `/readyz` and a metric show it.
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

  /** Jobs without progress for longer than their limit, the longest first. */
  overdue(now = performance.now()): OverdueWork[] {
    return [...this.#held]
      .filter(({ limitMs, progressAt }) => now - progressAt > limitMs)
      .sort((one, other) => one.progressAt - other.progressAt)
      .map(({ kind, id, progressAt }) => ({ kind, id, seconds: Math.round((now - progressAt) / 1000) }));
  }
}

const kinds = ['stream delivery', 'segment export', 'export callback'] as const;
export type HeldKind = (typeof kinds)[number];
