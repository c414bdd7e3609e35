import type pg from 'pg';
import type { Request } from '../../../test/identity-model/generate.ts';
import { describeCards, readStored } from '../../../test/identity-model/stored.ts';
import type { IdentityModel } from '../../../test/model/identity-model.ts';
import type { Circle } from '../load/circles.ts';
import type { Finding } from './finding.ts';

/** Names of users begin with the number of their circle. */
const MEMBER = /c(\d+)-/;

/**
 * Checks I5 for users that are merged, renamed and deleted: every circle equals its sequential model. If the
 * last request of a circle got no response, each object of that request may or may not have taken effect.
 */
export async function checkCircles(
  pool: pg.Pool,
  workspaceId: string,
  circles: Circle[],
): Promise<Finding[]> {
  const stored = new Map<number, string[]>();
  const findings: Finding[] = [];
  for (const profile of await readStored(pool, workspaceId)) {
    const number = Number(MEMBER.exec(profile)?.[1] ?? Number.NaN);
    if (Number.isNaN(number)) findings.push({ invariant: 'I5', what: `nobody's profile: ${profile}` });
    else stored.set(number, [...(stored.get(number) ?? []), profile]);
  }
  for (const { number, model, unknown } of circles) {
    const actual = (stored.get(number) ?? []).join();
    const possible = endingsOf(model, unknown).map((result) => describeCards(result.cards).join());
    if (possible.includes(actual)) continue;
    findings.push({
      invariant: 'I5',
      what: `circle ${number} is ${actual} and not ${possible.join(' or ')}`,
    });
  }
  return findings;
}

function endingsOf(model: IdentityModel, unknown: Request | undefined): IdentityModel[] {
  const elements = unknown?.elements ?? [];
  return Array.from({ length: 2 ** elements.length }, (_, subset) => {
    const result = model.copy();
    elements.forEach(({ kind, element }, index) => {
      if (subset & (1 << index)) result.apply(kind, element);
    });
    return result;
  });
}
