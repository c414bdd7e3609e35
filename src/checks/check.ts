import type { Readings } from './readings.ts';

/**
 * `critical`: data is not accepted, not applied, or lost. `warning`: this may happen soon, or an operator has to act.
 */
export type Severity = 'critical' | 'warning' | 'info';

/**
 * Permit that an account of the console needs in the workspace of a problem: a right, `company` for a company
 * administrator, or `operator` for BOARD_USER.
 */
export type ProblemPermit = 'syncs' | 'segments' | 'company' | 'operator';

/** The part of an installation that a check covers. */
export type Scope =
  | 'installation'
  | 'machine'
  | 'process'
  | 'lane'
  | 'shard'
  | 'workspace'
  | 'stream'
  | 'run';

/**
 * Where a check can be evaluated. `fleet`: by readers of the stores, which are the console, the command line and
 * /metrics of web. `process`: by each process for itself, in /readyz. `machine`: by `penstock doctor` on its machine.
 * `prometheus`: by an alert rule only, because the check needs a history.
 */
export type Evaluator = 'fleet' | 'process' | 'machine' | 'prometheus';

/** A value above the threshold of a check. */
export interface Exceeded {
  /** One sentence with the measured values. */
  sentence: string;
  /** The affected process, stream or limit, if there can be several. */
  subject?: string;
  /** Workspace that the problem is about, if it is about one. Accounts need the check's `permit` in it. */
  workspaceId?: string;
  /** `sentence` without the details that only an operator may see; absent if every account may see `sentence`. */
  publicSentence?: string;
  /** Start of the problem; absent if the reader only knows when it first read the value. */
  since?: Date | undefined;
  /** Overrides for the fields of the check. */
  severity?: Severity;
  impact?: string;
  firstStep?: string;
  link?: string;
}

/** An alert rule in monitoring/alerts.yml and the section of the runbook that it links to. */
export interface Alert {
  name: string;
  /** PromQL. */
  expr: string;
  /** How long the expression must hold; absent if the alert fires at once. */
  for?: string;
  /** A Prometheus template: where, what and how much. */
  summary: string;
  meaning: string;
  /** Paragraphs and list items in Markdown. */
  diagnose: readonly string[];
  fix: readonly string[];
}

/** A sentence that `penstock doctor` prints while a problem does not exist. */
export interface NormalState {
  sentence: string;
  /** Subject whose problems replace the sentence. Every problem of the group replaces a sentence without a subject. */
  subject?: string;
}

/** A possible problem: how to detect it, its threshold, and what to do about it. */
export interface Check {
  id: string;
  /** Name of the group in the output of `penstock doctor`. */
  group: string;
  severity: Severity;
  scope: Scope;
  evaluators: readonly Evaluator[];
  /** Consequences of the problem. */
  impact: string;
  firstStep: string;
  /** Permit that an account of the console needs in the workspace of a problem. Default: `operator`. */
  permit?: ProblemPermit;
  /** Path of a page in the console. */
  link: string;
  /**
   * Returns the text that `penstock doctor` prints if the group has no problem, or a sentence for each subject;
   * undefined if the value could not be read.
   */
  normal?(readings: Readings): string | NormalState[] | undefined;
  /** Ids of checks that explain this one. If one of them has a problem, this check's problem is not listed. */
  unless?: readonly string[];
  /** Returns every value above the threshold. Absent if only the alert evaluates the check. */
  find?(readings: Readings): Exceeded[];
  alert?: Alert;
}

/** A problem that a check has found. */
export interface Problem {
  id: string;
  group: string;
  severity: Severity;
  scope: Scope;
  /** Null if there can be only one. */
  subject: string | null;
  /** Null if the problem is about no single workspace. The console then shows it to every account. */
  workspaceId: string | null;
  /** Permit that an account needs in that workspace to see the problem. */
  permit: ProblemPermit;
  sentence: string;
  /** `sentence` for accounts of the console. */
  publicSentence: string;
  impact: string;
  firstStep: string;
  link: string;
  since: Date | undefined;
}

export const severities: readonly Severity[] = ['critical', 'warning', 'info'];
