import { ApiError } from '../../errors.ts';
import { grouped } from '../../platform/numbers.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { jsonBytesAtLeast } from '../../profile/json.ts';
import type { Pool } from '../../store/database.ts';
import { MAX_LISTED, readProfiles, type StoredUser } from '../../store/export.ts';

/** Bytes that the users of one answer may take: 16 MB. */
export const MAX_EXPORT_BYTES = 16_777_216;

/** Bytes that are read at once, about: others have their turn between two pages. */
const PAGE_BYTES = 1_048_576;
const FIRST_PAGE = 4;
const LARGEST_PAGE = 100;

/**
 * Reads users page by page, each page as large as the users before let expect; one that is gone meanwhile is missing.
 *
 * @param fields names of the wanted fields
 * @throws {ApiError} when they take more than an answer may, or one has more of something than is read
 */
export async function readUsers(
  pool: Pool,
  workspaceId: string,
  { ids, fields }: { ids: string[]; fields: string[] },
): Promise<Map<string, StoredUser>> {
  const users = new Map<string, StoredUser>();
  let bytes = 0;
  for (let start = 0, size = FIRST_PAGE; start < ids.length; ) {
    const page = ids.slice(start, start + size);
    for (const user of await readProfiles(pool, workspaceId, { ids: page, fields })) {
      const cut = user.cut.filter((field) => fields.includes(field));
      if (cut.length > 0)
        throw new ApiError('tooLongToExport', `${cut.join(', ')} of ${toServiceId(user.id)}`);
      users.set(user.id, user);
      bytes += jsonBytesAtLeast(user);
    }
    if (bytes > MAX_EXPORT_BYTES) throw new ApiError('tooMuchToExport');
    start += page.length;
    size = Math.max(1, Math.min(LARGEST_PAGE, Math.floor((PAGE_BYTES * start) / Math.max(1, bytes))));
  }
  return users;
}

/** For people. */
export const EXPORT_LIMITS = `The users of an answer may take ${MAX_EXPORT_BYTES / 1_048_576} MB together, and each may have ${grouped(MAX_LISTED)} kinds of events, products and push tokens: else the answer is 400, and \`fields_to_export\` or fewer users help.`;
