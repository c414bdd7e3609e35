import { textArray, uuidArray } from '../arrays.ts';
import type { Connection, Pool } from '../database.ts';

/** A profile, and which of the wanted ones it is. */
export interface FoundProfile {
  /** 1 is the first. */
  place: number;
  id: string;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
}

/** By the unique index profiles_external_id; locks nothing. */
const statement = `
  select
    wanted.place::integer,
    profiles.id,
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid"
  from unnest($1::uuid[], $2::text[]) with ordinality as wanted (workspace_id, external_id, place)
  cross join lateral (
    select profiles.*
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.external_id = wanted.external_id
    limit 1
  ) as profiles`;

/** What the caller knows already is not sent back: this is the statement with the most rows of all. */
export async function findByExternalId(
  tx: Pick<Connection | Pool, 'query'>,
  workspaceIds: string[],
  externalIds: string[],
): Promise<FoundProfile[]> {
  const { rows } = await tx.query<FoundProfile>({
    name: 'find-by-external-id',
    text: statement,
    values: [uuidArray(workspaceIds, (id) => id), textArray(externalIds, (id) => id)],
  });
  return rows;
}
