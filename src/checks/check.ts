import type { Readings } from './readings.ts';

/** `critical`: something is not accepted, not applied, or lost. `warning`: it may be soon, or an operator has to act. */
export type Severity = 'critical' | 'warning' | 'info';

/** The part of an installation that a check is about. */
export type Scope = 'installation' | 'process' | 'lane' | 'shard' | 'workspace' | 'stream' | 'run';

/**
 * Where a check can be evaluated. `fleet`: by whoever reads the stores, which are the console, the command line and
 * /metrics of web. `process`: by each process about itself, in /readyz. `machine`: by `penstock doctor` on its machine.
 * `prometheus`: by an alert rule alone, because it needs a history.
 */
export type Place = 'fleet' | 'process' | 'machine' | 'prometheus';

/** A value above the threshold of a check. */
export interface Exceeded {
  /** One sentence with the values. */
  sentence: string;
  /** Which one it is, where there can be several: a process, a stream, a limit. */
  subject?: string;
  /** When it began; absent: whoever reads it knows only since when it has been read. */
  since?: Date | undefined;
  /** Where these differ from those of the check. */
  severity?: Severity;
  impact?: string;
  firstStep?: string;
  link?: string;
}

/** The rule of monitoring/alerts.yml, and the section of the runbook that it links to. */
export interface Alert {
  name: string;
  /** PromQL. */
  expr: string;
  /** How long the expression must hold; absent: not at all. */
  for?: string;
  /** Differs where Prometheus sees less than the fleet does. */
  severity?: Severity;
  /** A template of Prometheus: place, fault and amount. */
  summary: string;
  meaning: string;
  /** Paragraphs and list items in Markdown. */
  diagnose: readonly string[];
  fix: readonly string[];
}

/** One thing that can be wrong: how it is read, from where on it counts, and what to do about it. */
export interface Check {
  id: string;
  /** The name under which `penstock doctor` prints it. */
  group: string;
  severity: Severity;
  scope: Scope;
  places: readonly Place[];
  /** The values that `find` and `alert` compare with, by name and unit. */
  threshold?: Readonly<Record<string, number>>;
  /** What suffers. */
  impact: string;
  firstStep: string;
  /** A page of the console. */
  link: string;
  /** What `penstock doctor` prints while nothing of the group is wrong; undefined: it could not be read. */
  normal?(readings: Readings): string | undefined;
  /** Checks whose problem explains this one: it is not listed beside them. */
  unless?: readonly string[];
  /** Every value that is above the threshold. Absent: the alert alone evaluates it. */
  find?(readings: Readings): Exceeded[];
  alert?: Alert | readonly Alert[];
}

/** A check that has found something. */
export interface Problem {
  id: string;
  group: string;
  severity: Severity;
  scope: Scope;
  /** Null: there is one. */
  subject: string | null;
  sentence: string;
  impact: string;
  firstStep: string;
  link: string;
  since: Date | undefined;
}

export const severities: readonly Severity[] = ['critical', 'warning', 'info'];
