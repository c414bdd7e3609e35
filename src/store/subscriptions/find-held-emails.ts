import type { Connection } from '../database.ts';

/** By the index profiles_email, for each address: the limit keeps the planner from a join. Locks nothing. */
const statement = `
  select wanted.workspace_id as "workspaceId", wanted.email
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, email)
  where (
    select 1
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.email = wanted.email
      and profiles.id <> all ($3::uuid[])
    limit 1) is not null`;

/**
 * Which of these addresses somebody has.
 *
 * @param except profiles that do not count
 */
export async function findHeldEmails(
  tx: Connection,
  workspaceIds: string[],
  emails: string[],
  except: string[],
): Promise<{ workspaceId: string; email: string }[]> {
  const { rows } = await tx.query<{ workspaceId: string; email: string }>({
    name: 'find-held-emails',
    text: statement,
    values: [workspaceIds, emails, except],
  });
  return rows;
}
