/** What the program of the probe is told. */
export interface ProbeOptions {
  /** The web process. */
  port: number;
  key: string;
  /** An external id for each lane. */
  users: string[];
  /** Where each process has its pages, by its name. */
  processes: Record<string, number>;
}

/** What somebody in another workspace has met since the last figures. All in milliseconds. */
export interface Figures {
  /** The longest that an accepted event was not readable, by lane. */
  lanes: number[];
  /** The longest that an event loop stood, by process. */
  loops: Record<string, number>;
  /** The longest that a process took to say that it is alive. */
  pages: Record<string, number>;
  /** The longest that an event waited for its answer. */
  answer: number;
  /** The longest that nothing but refusals were met. */
  refused: number;
  /** The longest that the event loop of the probe stood, which has next to nothing to do. */
  bystander: number;
}

/** The larger of each figure. */
export function largest(all: Figures[]): Figures {
  const most = (read: (figures: Figures) => number) => Math.max(0, ...all.map(read));
  const mostOf = (read: (figures: Figures) => Record<string, number>) =>
    Object.fromEntries(
      Object.keys(all[0] ? read(all[0]) : {}).map((name) => [name, most((one) => read(one)[name] ?? 0)]),
    );
  return {
    lanes: (all[0]?.lanes ?? []).map((_, lane) => most(({ lanes }) => lanes[lane]!)),
    loops: mostOf(({ loops }) => loops),
    pages: mostOf(({ pages }) => pages),
    answer: most(({ answer }) => answer),
    refused: most(({ refused }) => refused),
    bystander: most(({ bystander }) => bystander),
  };
}
