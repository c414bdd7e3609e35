import type { Connection } from '../database.ts';
import { type ProfileRow, profileColumns } from './profile-row.ts';

/** Most profiles on one address among whom a `prioritization` chooses. */
export const MAX_CANDIDATES = 10_000;

/** When the profile received the last of its summarised events or purchases. */
const lastOf = (summaries: string) =>
  `(select max(${summaries}.updated_at) from ${summaries}
        where ${summaries}.workspace_id = profiles.workspace_id and ${summaries}.profile_id = profiles.id)`;

const candidatesOf = (column: 'email' | 'phone', condition: string) => `
    select profiles.*, greatest(profiles.updated_at, ${lastOf('event_summaries')}, ${lastOf('purchase_summaries')}) as seen
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.${column} = wanted.address
      and ${condition}
    limit ${MAX_CANDIDATES + 1}`;

const statementOf = (column: 'email' | 'phone', condition: string) => `
  select ${profileColumns}, wanted.address
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, address)
  cross join lateral (${candidatesOf(column, condition)}) as profiles
  order by wanted.address, profiles.seen, profiles.id`;

const statements = {
  email: statementOf('email', 'true'),
  phone: statementOf('phone', 'profiles.phone_valid'),
};

/**
 * Everyone who has each address, the one updated longest ago first; by the index on the column, then by the
 * primary keys of the summaries. More than MAX_CANDIDATES of one address means that there may be still more.
 */
export async function findCandidates(
  tx: Connection,
  column: 'email' | 'phone',
  workspaceIds: string[],
  addresses: string[],
): Promise<(ProfileRow & { address: string })[]> {
  const { rows } = await tx.query({
    name: `find-candidates-by-${column}`,
    text: statements[column],
    values: [workspaceIds, addresses],
  });
  return rows;
}
