import type { Connection } from '../database.ts';
import type { ProfileRow } from './profile-row.ts';
import { sharingStatement } from './sharing-statement.ts';

const statement = sharingStatement('email', 'true');

/** The profiles that share each email address, best match first; MAX_SHARING of them at most. */
export async function findByEmail(
  tx: Connection,
  workspaceIds: string[],
  emails: string[],
): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-email',
    text: statement,
    values: [workspaceIds, emails],
  });
  return rows;
}
