import type { Connection } from '../database.ts';

/** By the index profiles_email; locks nothing. */
const statement = `
  select wanted.workspace_id as "workspaceId", wanted.email
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, email)
  where exists (
    select
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.email = wanted.email
      and profiles.id <> all ($3::uuid[]))`;

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
