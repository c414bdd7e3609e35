import type { NormalState } from '../../checks/check.ts';
import type { Readings } from '../../checks/readings.ts';
import { checks, findProblems } from '../../checks/registry.ts';
import { packageVersion } from '../../platform/files.ts';

/** Result of a check. `error`: something fails now or will lose data. `warning`: it may do so later. */
export interface Finding {
  /** Group of the check. */
  check: string;
  level: 'ok' | 'warning' | 'error';
  finding: string;
  /** The action to take; null if no action is required. */
  advice: string | null;
  /** Problems have the next four: id of the check, impact, console page, and start (ISO 8601). */
  id?: string;
  impact?: string;
  link?: string;
  since?: string | null;
}

const ok = (check: string, finding: string): Finding => ({ check, level: 'ok', finding, advice: null });

/** Returns the releases that run this command, and for each group of checks its normal state or its problems. */
export function findingsOf(readings: Readings): Finding[] {
  const problems = [...findProblems(readings, 'fleet'), ...findProblems(readings, 'machine')];
  const sentences = new Set<string>();
  // A problem of both places is listed once.
  const distinct = problems.filter(({ sentence }) => !sentences.has(sentence) && sentences.add(sentence));
  const isReplaced = (ofGroup: string, ofSubject: string | undefined) =>
    distinct.some(
      ({ group, subject }) => group === ofGroup && (ofSubject === undefined || subject === ofSubject),
    );
  const normal = checks.flatMap(({ group, normal: describe }) =>
    statesOf(describe?.(readings))
      .filter(({ subject }) => !isReplaced(group, subject))
      .map(({ sentence }) => ok(group, sentence)),
  );
  return [
    ok('version', `penstock ${packageVersion} on Node ${process.version}`),
    ...normal,
    ...distinct.map(
      ({ id, group, severity, sentence, impact, firstStep, link, since }): Finding => ({
        ...{ check: group, level: severity === 'critical' ? 'error' : 'warning', finding: sentence },
        ...{ advice: firstStep, id, impact, link, since: since?.toISOString() ?? null },
      }),
    ),
  ];
}

function statesOf(normal: string | NormalState[] | undefined): NormalState[] {
  if (normal === undefined) return [];
  return typeof normal === 'string' ? [{ sentence: normal }] : normal;
}
