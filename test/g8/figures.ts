/** Options of the probe process. */
export interface ProbeOptions {
  /** Port of the web process. */
  port: number;
  key: string;
  /** One external id per lane. */
  users: string[];
  /** Port of the metrics page of each process, by process name. */
  processes: Record<string, number>;
}

/** Longest delays in another workspace since the previous figures, in milliseconds. */
export interface Figures {
  /** Longest time until an accepted event was readable, by lane. */
  lanes: number[];
  /** Longest stall of the event loop, by process. */
  loops: Record<string, number>;
  /** Longest response time of /healthz, by process. */
  pages: Record<string, number>;
  /** Longest response time of a request with events. */
  answer: number;
  /** Longest period in which every request was refused. */
  refused: number;
  /** Longest stall of the probe's event loop. The probe is almost idle, so it shows other load on the machine. */
  bystander: number;
}

/** Returns the maximum of each figure. */
export function largest(all: Figures[]): Figures {
  const most = (read: (figures: Figures) => number) => Math.max(0, ...all.map(read));
  const maxOf = (read: (figures: Figures) => Record<string, number>) =>
    Object.fromEntries(
      Object.keys(all[0] ? read(all[0]) : {}).map((name) => [name, most((one) => read(one)[name] ?? 0)]),
    );
  return {
    lanes: (all[0]?.lanes ?? []).map((_, lane) => most(({ lanes }) => lanes[lane]!)),
    loops: maxOf(({ loops }) => loops),
    pages: maxOf(({ pages }) => pages),
    answer: most(({ answer }) => answer),
    refused: most(({ refused }) => refused),
    bystander: most(({ bystander }) => bystander),
  };
}
