import { textArray, uuidArray } from './arrays.ts';
import type { Connection, Database } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/** Maximum number of custom attribute names that are recorded per workspace. */
export const MAX_NAMES = 10_000;

/** A name of a custom attribute, with a set of types: see attribute-types.ts. */
interface AttributeName {
  name: string;
  types: number;
}

/** A name of a custom attribute that is used in a workspace. */
export interface AttributeNameRow extends AttributeName {
  workspaceId: string;
}

/** Reads a range of the primary key with up to MAX_NAMES entries. */
const countNamesStatement = `
  select count(*)::integer as names
  from (
    select from custom_attribute_names
    where custom_attribute_names.workspace_id = $1::uuid
    limit ${MAX_NAMES}
  ) as counted`;

/** Counts the names that are recorded of a workspace, up to MAX_NAMES. */
export async function countAttributeNames(tx: Connection, workspaceId: string): Promise<number> {
  const { rows } = await tx.query<{ names: number }>({
    name: 'count-attribute-names',
    text: countNamesStatement,
    values: [workspaceId],
  });
  return rows[0]!.names;
}

/** Upserts in primary key order, so that two transactions lock shared names in the same order. */
const recordNamesStatement = withCitusForm(`
  insert into custom_attribute_names as known (workspace_id, name, types, first_seen_at)
  select given.workspace_id, given.name, given.types, $4::timestamptz
  from unnest($1::uuid[], $2::text[], $3::smallint[]) as given (workspace_id, name, types)
  order by given.workspace_id, given.name
  on conflict (workspace_id, name) do update set types = known.types | excluded.types
  where known.types | excluded.types <> known.types`);

/** Records names with the types that were seen. A name of a workspace may occur only once. */
export async function recordAttributeNames(
  tx: Connection,
  rows: AttributeNameRow[],
  now: string,
): Promise<void> {
  await tx.query({
    name: 'record-attribute-names',
    text: recordNamesStatement,
    values: [
      uuidArray(rows, (row) => row.workspaceId),
      textArray(rows, (row) => row.name),
      rows.map((row) => row.types),
      now,
    ],
  });
}

/**
 * Lists names in alphabetical order.
 *
 * @param after last name of the previous page; empty for the first page
 */
export function listAttributeNames(
  { prisma }: Pick<Database, 'prisma'>,
  workspaceId: string,
  { after, limit }: { after: string; limit: number },
): Promise<AttributeName[]> {
  return prisma.customAttributeName.findMany({
    where: { workspaceId, name: { gt: after } },
    orderBy: { name: 'asc' },
    select: { name: true, types: true },
    take: limit,
  });
}
