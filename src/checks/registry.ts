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
  const found = checks
    .filter(({ evaluators }) => evaluators.includes(evaluator))
    .flatMap((check) => (check.find?.(readings) ?? []).map((exceeded) => problemOf(check, exceeded)));
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

/** Formats a problem as JSON for the command line and /readyz. */
export function printedProblem(problem: Problem) {
  const { id, group, severity, scope, subject, sentence, impact, firstStep, link, since } = problem;
  return {
    ...{ id, group, severity, scope, subject, sentence, impact, link },
    ...{ first_step: firstStep, since: since?.toISOString() ?? null },
  };
}
