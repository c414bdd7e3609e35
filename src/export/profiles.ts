import type { ParquetColumn } from '../object-store/parquet.ts';
import { toUserObject, userFields } from '../operations/export/user-fields.ts';
import type { Definition } from '../profile/segment.ts';
import { readProfiles } from '../store/export.ts';
import { estimateRows } from '../store/row-estimates.ts';
import { FIRST_ID, lookAtUsers } from '../store/segments.ts';
import type { Page, Reading, Source } from './source.ts';

/** Users that are asked for at once whether they are meant. */
export const LOOKED_AT = 5000;
/** Users that are read at once: any of them may have as much as a user can have. */
const READ = 200;
const USERS_OF_FILE = 50_000;

export const everybody: Definition = { all: [] };

/** Ids of users who are meant, in their order, with how many were looked at for them. */
export interface UsersPage {
  ids: string[];
  looked: number;
  last: string;
}

/** Users of the workspace or of the segment, a few at a time, so that each page can be read whole. */
export async function* pagesOfUsers(
  { wanted, connection, leaving, lookedAt = LOOKED_AT }: Reading,
  after: string,
): AsyncGenerator<UsersPage, void> {
  const definition = wanted.segment?.definition ?? everybody;
  for (let behind = after; ; ) {
    leaving.throwIfAborted();
    const part = { workspaceId: wanted.workspace.id, definition, after: behind, limit: lookedAt };
    const { read, sample, last } = await lookAtUsers(connection, { ...part, sample: lookedAt });
    if (last === undefined) return;
    for (let at = 0; at < sample.length; at += READ) {
      const ids = sample.slice(at, at + READ);
      const isLast = at + READ >= sample.length;
      // Behind the last one who is meant, others were looked at.
      yield { ids, looked: isLast ? read : 0, last: isLast ? last : ids.at(-1)! };
      leaving.throwIfAborted();
    }
    if (sample.length === 0) yield { ids: [], looked: read, last };
    if (read < lookedAt) return;
    behind = last;
  }
}

/** Users with the fields and the spelling of `/users/export/ids`, by their ids. */
export function profilesSource(reading: Reading): Source {
  const { wanted, connection, serviceIdField, lookedAt = LOOKED_AT } = reading;
  const known = userFields(serviceIdField);
  const fields = wanted.fields ?? Object.keys(known);
  const shown = fields.map((name) => [name, known[name]!] as [string, (typeof known)[string]]);
  const workspaceId = wanted.workspace.id;

  async function* pages(after: string): AsyncGenerator<Page, void> {
    for await (const { ids, looked, last } of pagesOfUsers(reading, after)) {
      const users = ids.length > 0 ? await readProfiles(connection, workspaceId, { ids, fields }) : [];
      users.sort((one, other) => (one.id < other.id ? -1 : 1));
      yield {
        rows: users.map((user) => toUserObject(user, shown)),
        ...{ looked, last, cut: users.filter(({ cut }) => cut.length > 0).length },
      };
    }
  }

  return {
    ...{ first: FIRST_ID, most: Math.min(READ, lookedAt), rowsOfFile: USERS_OF_FILE, pages },
    columns: shown.map(([name, { schema }]) => ({ name, type: typeOf(schema) })),
    estimate: (after) => estimateRows(connection, workspaceId, { table: 'profiles', after }),
  };
}

type Schema = Record<string, unknown>;

/** Lists and objects are JSON. */
function typeOf({ type, format, enum: listed }: Schema): ParquetColumn['type'] {
  if (type === 'string') return format === 'date-time' ? 'timestamp' : 'text';
  if (listed) return 'text';
  if (type === 'boolean') return 'boolean';
  if (type === 'integer') return 'bigint';
  return type === 'number' ? 'double' : 'json';
}
