import { grouped } from '../platform/format.ts';
import { type Check, type Evaluator, type Problem, severities } from './check.ts';
import { laneChecks } from './lanes.ts';
import { machineChecks } from './machine.ts';
import { postgresChecks } from './postgres.ts';
import { processChecks } from './processes.ts';
import type { Readings } from './readings.ts';
import { redisChecks } from './redis.ts';
import { storeChecks } from './stores.ts';
import { webChecks } from './web.ts';
import { workChecks } from './work.ts';

/** Every check of an installation. Within a severity, problems are listed in the order of these checks. */
export const checks: readonly Check[] = [
  ...storeChecks,
  ...postgresChecks,
  ...redisChecks,
  ...processChecks,
  ...laneChecks,
  ...webChecks,
  ...workChecks,
  ...machineChecks,
];

/**
 * Evaluates the checks of a place.
 * @returns the problems, most severe first
 */
export function findProblems(readings: Readings, evaluator: Evaluator): Problem[] {
  return withoutConsequences(
    checks
      .filter(({ evaluators }) => evaluators.includes(evaluator))
      .flatMap((check) => (check.find?.(readings) ?? []).map((exceeded) => problemOf(check, exceeded))),
  );
}

/** Removes problems that another problem of the list explains. Returns the others, most severe first. */
function withoutConsequences(found: readonly Problem[]): Problem[] {
  const ids = new Set(found.map(({ id }) => id));
  const consequences = new Set(
    checks.filter(({ unless = [] }) => unless.some((id) => ids.has(id))).map(({ id }) => id),
  );
  return found
    .filter(({ id }) => !consequences.has(id))
    .sort((one, other) => severities.indexOf(one.severity) - severities.indexOf(other.severity));
}

function problemOf(check: Check, exceeded: ReturnType<NonNullable<Check['find']>>[number]): Problem {
  const { id, group, scope, permit = 'operator' } = check;
  const { sentence, publicSentence = sentence, since, subject = null, workspaceId = null } = exceeded;
  const { severity = check.severity, impact = check.impact } = exceeded;
  const { firstStep = check.firstStep, link = check.link } = exceeded;
  return {
    ...{ id, group, severity, scope, subject, workspaceId, permit, sentence, publicSentence },
    ...{ impact, firstStep, link, since },
  };
}

/** Maximum number of problems in /readyz. */
const MAX_LISTED = 50;

/**
 * Returns the problems that /readyz lists, most severe first: the problems of the process, and the problems of the
 * installation that the process does not detect itself. /readyz needs no key, so it names no workspace.
 */
export function openProblems(own: readonly Problem[], installation: readonly Problem[]): Problem[] {
  const ids = new Set(own.map(({ id }) => id));
  const others = installation.filter(({ id }) => !ids.has(id));
  const ofWorkspaces = others.filter(({ workspaceId }) => workspaceId !== null);
  const idsOfWorkspaces = [...new Set(ofWorkspaces.map(({ id }) => id))];
  return withoutConsequences([
    ...own,
    ...others
      .filter(({ workspaceId }) => workspaceId === null)
      .map((one) => ({ ...one, sentence: one.publicSentence })),
    ...idsOfWorkspaces.map((id) => withoutNames(ofWorkspaces.filter((one) => one.id === id))),
  ]).slice(0, MAX_LISTED);
}

/** Summarizes the problems of one check without the names of workspaces and of their streams, integrations or files. */
function withoutNames(problems: readonly Problem[]): Problem {
  const [first] = problems as [Problem];
  const [link = '/'] = /^\/[^/#]*/.exec(first.link) ?? [];
  const begun = problems.flatMap(({ since }) => (since ? [since.getTime()] : []));
  const sentence =
    problems.length === 1
      ? 'A workspace has a problem. Run penstock status for the sentence.'
      : `${grouped(problems.length)} problems of workspaces. Run penstock status for the sentences.`;
  return {
    ...{ ...first, subject: null, workspaceId: null, link, sentence, publicSentence: sentence },
    since: begun.length > 0 ? new Date(Math.min(...begun)) : undefined,
  };
}

/** Formats a problem as JSON for the command line and /readyz. */
export function printedProblem(problem: Problem) {
  const { id, group, severity, scope, subject, sentence, impact, firstStep, link, since } = problem;
  return {
    ...{ id, group, severity, scope, subject, sentence, impact, link },
    ...{ first_step: firstStep, since: since?.toISOString() ?? null },
  };
}
