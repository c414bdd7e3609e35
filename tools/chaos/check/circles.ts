import type pg from 'pg';
import type { Request } from '../../../test/identity-model/generate.ts';
import { describeCards, readStored } from '../../../test/identity-model/stored.ts';
import type { IdentityModel } from '../../../test/model/identity-model.ts';
import type { Circle } from '../load/circles.ts';
import type { Finding } from './finding.ts';

/** Names of a circle's users begin with its number. */
const MEMBER = /c(\d+)-/;

/**
 * I5 of users that merge, are renamed and deleted: every circle is as the sequential model has it. Of a circle
 * whose last request has no answer, each object of that request may have taken effect or not.
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
