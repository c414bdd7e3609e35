import type { Connection } from '../database.ts';
import type { ProfileRow } from './profile-row.ts';
import { sharingStatement } from './sharing-statement.ts';

const statement = sharingStatement('phone', 'profiles.phone_valid');

/** The profiles that share each valid phone number, best match first; MAX_SHARING of them at most. */
export async function findByPhone(
  tx: Connection,
  workspaceIds: string[],
  phones: string[],
): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-phone',
    text: statement,
    values: [workspaceIds, phones],
  });
  return rows;
}
