import type pg from 'pg';
import type { Keyed } from '../load/keyed.ts';
import type { Finding } from './finding.ts';

/** The stored effects of a user's requests. */
interface Effects {
  user: string;
  points: number;
  events: number;
  purchases: number;
}

/**
 * Checks that each request with a key that got a 2xx response has exactly one effect (I1, I2), and that
 * refused requests have none (I3). The queue must be empty.
 */
export async function checkKeyed(
  pool: pg.Pool,
  workspaceId: string,
  requests: readonly Keyed[],
): Promise<Finding[]> {
  const { rows } = await pool.query<Effects>(
    `select external_id as user, coalesce((custom_attributes -> 'points')::integer, 0) as points,
            (select count(*)::integer from events where workspace_id = $1 and profile_id = profiles.id) as events,
            (select count(*)::integer from purchases where workspace_id = $1 and profile_id = profiles.id) as purchases
       from profiles where workspace_id = $1`,
    [workspaceId],
  );
  const effects = new Map(rows.map((row) => [row.user, row]));
  return requests.flatMap(({ user, other, key, answers, refusals }) => [
    ...check(
      effects.get(user),
      answers.some(isAccepted),
      `${user}, sent ${answers.length} times under ${key}`,
    ),
    ...check(effects.get(other), refusals.some(isAccepted), `${other}, another body under ${key}`),
  ]);
}

const isAccepted = ({ status }: { status: number }) => status >= 200 && status < 300;

function check(effects: Effects | undefined, accepted: boolean, what: string): Finding[] {
  const { points, events, purchases } = effects ?? { points: 0, events: 0, purchases: 0 };
  const [min, max] = [Math.min(points, events, purchases), Math.max(points, events, purchases)];
  const took = `${what}: ${points} attribute objects, ${events} events, ${purchases} purchases took effect`;
  if (!accepted) return max > 0 ? [{ invariant: 'I3', what: took }] : [];
  return [
    ...(min < 1 ? [{ invariant: 'I1' as const, what: took }] : []),
    ...(max > 1 ? [{ invariant: 'I2' as const, what: took }] : []),
  ];
}

/** Returns a description of each key whose responses differ. */
export function toldApart(requests: readonly Keyed[]): string[] {
  return requests.flatMap(({ user, answers }) => {
    const responses = new Set(answers.map((answer) => JSON.stringify(answer)));
    return responses.size === 1 ? [] : [`${user} got ${[...responses].slice(0, 3).join(' and ')}`];
  });
}
