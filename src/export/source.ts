import type { ParquetColumn } from '../object-store/parquet.ts';
import { toUserObject, userFields } from '../operations/export/user-fields.ts';
import { floorOf, NIL_UUID } from '../platform/ids.ts';
import { toServiceId } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import type { Definition } from '../profile/segment.ts';
import {
  type ExportedActivity,
  estimateRows,
  findOwners,
  followMerges,
  MAX_STEPS,
  type Owner,
  readActivity,
} from '../store/bulk-export.ts';
import type { Connection } from '../store/database.ts';
import { readProfiles } from '../store/export.ts';
import { lookAtUsers } from '../store/segments.ts';
import { ExportError, type Wanted } from './progress.ts';

/** One line of a file, as an object of the API. */
export type ExportedRow = Record<string, Json>;

/** Rows that were read together. */
export interface Page {
  rows: ExportedRow[];
  /** Rows of the store that were looked at for them. */
  looked: number;
  /** Those of `rows` of which a list was cut. */
  cut: number;
  /** Where the next page begins, for `pages`. */
  last: string;
}

/** Where the rows of one kind come from. */
export interface Source {
  /** Place of a run that is the first one. */
  first: string;
  /** Rows of one page at most. */
  most: number;
  /** Rows of a file at most, unless told. */
  rowsOfFile: number;
  /** Of a Parquet file; a column takes the member of its name, and those of an alias the members of `user_alias`. */
  columns: ParquetColumn[];
  /** Page by page to the end, in the order of keys. */
  pages(after: string): AsyncGenerator<Page, void>;
  /** About how many rows there are to look at behind a place. */
  estimate(after: string): Promise<number>;
}

/** What sources are made from. */
export interface Reading {
  wanted: Wanted;
  /** Within the snapshot. */
  connection: Connection;
  serviceIdField: string;
  /** Asked between two pages. */
  leaving: AbortSignal;
  /** Rows that are looked at at once, unless as many as fit the kind. */
  lookedAt?: number | undefined;
}

/** Users that are asked for at once whether they are meant. */
const LOOKED_AT = 5000;
/** Users that are read at once: any of them may have as much as a user can have. */
const READ = 200;
const USERS_OF_FILE = 50_000;

export const everybody: Definition = { all: [] };

/** Ids of users who are meant, in their order, with how many were looked at for them. */
interface UsersPage {
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
    ...{ first: NIL_UUID, most: Math.min(READ, lookedAt), rowsOfFile: USERS_OF_FILE, pages },
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

/**
 * What names a user where a row is imported: never an address that others have as well. The service's own id is known to
 * the installation alone that made it.
 */
export function nameOf(owner: Owner, serviceIdField: string): ExportedRow {
  const { externalId, aliasName, aliasLabel, ownEmail, ownPhone } = owner;
  if (externalId !== null) return { external_id: externalId };
  if (aliasName !== null) return { user_alias: { alias_name: aliasName, alias_label: aliasLabel } };
  if (ownEmail !== null) return { email: ownEmail };
  if (ownPhone !== null) return { phone: ownPhone };
  return { [serviceIdField]: toServiceId(owner.id) };
}

/** Columns of a Parquet file for what `nameOf` gives. */
export const namingColumns = (serviceIdField: string): ParquetColumn[] =>
  ['external_id', 'alias_name', 'alias_label', serviceIdField, 'email', 'phone'].map((name) => ({
    name,
    type: 'text',
  }));

/**
 * Who has these profiles now: themselves, or who has taken them in.
 * @returns by the profile's id; without those who were deleted
 * @throws {ExportError}
 */
async function ownersOf(
  { wanted, connection }: Reading,
  profileIds: readonly string[],
): Promise<Map<string, Owner>> {
  const workspaceId = wanted.workspace.id;
  const asked = [...new Set(profileIds)];
  if (asked.length === 0) return new Map();
  const kept = await followMerges(connection, workspaceId, asked);
  if (!kept)
    throw new ExportError(
      `more than ${MAX_STEPS} merges lead from one of ${asked.length} users from ${toServiceId(asked[0]!)} on`,
    );
  const ids = [...new Set(asked.map((id) => kept.get(id) ?? id))];
  const definition = wanted.segment?.definition ?? everybody;
  const found = new Map(
    (await findOwners(connection, workspaceId, { ids, definition })).map((owner) => [owner.id, owner]),
  );
  return new Map(
    asked.flatMap((id) => {
      const owner = found.get(kept.get(id) ?? id);
      return owner ? [[id, owner] as const] : [];
    }),
  );
}

/** Rows that are read at once: any of them may have 50 KB of properties. */
const ROWS_AT_ONCE = 500;
const ROWS_OF_FILE = 100_000;
/** What is accepted has happened by then, by the clock of the process that took it. */
const CLOCKS_APART_MS = 3_600_000;

const columns: Record<'events' | 'purchases', ParquetColumn[]> = {
  events: [
    { name: 'name', type: 'text' },
    { name: 'time', type: 'timestamp' },
  ],
  purchases: [
    { name: 'product_id', type: 'text' },
    { name: 'currency', type: 'text' },
    { name: 'price', type: 'double' },
    { name: 'quantity', type: 'bigint' },
    { name: 'time', type: 'timestamp' },
  ],
};

/** Events or purchases as `/users/track` takes them, by the ids of their users, and of one user as they were accepted. */
export function activitySource(kind: 'events' | 'purchases', reading: Reading): Source {
  const { wanted, connection, serviceIdField, leaving, lookedAt: limit = ROWS_AT_ONCE } = reading;
  const { workspace, from, until } = wanted;
  const { since, sinceMonth } = acceptedFrom(from);

  async function* pages(begin: string): AsyncGenerator<Page, void> {
    for (let [profileId, id] = begin.split('/') as [string, string]; ; ) {
      leaving.throwIfAborted();
      const after = { profileId, id };
      const part = { workspaceId: workspace.id, after, since, sinceMonth, from, until, limit };
      const read = await readActivity(connection, kind, part);
      const last = read.at(-1);
      if (!last) return;
      const wantedRows = read.flatMap(({ profileId, activity }) =>
        activity ? [{ profileId, activity }] : [],
      );
      const owners = await ownersOf(
        reading,
        wantedRows.map((row) => row.profileId),
      );
      const rows = wantedRows.flatMap((row) => {
        const owner = owners.get(row.profileId);
        return owner?.isMeant ? [{ ...nameOf(owner, serviceIdField), ...given(row.activity) }] : [];
      });
      [profileId, id] = [last.profileId, last.id];
      yield { rows, looked: read.length, cut: 0, last: `${profileId}/${id}` };
      if (read.length < limit) return;
    }
  }

  return {
    ...{ first: `${NIL_UUID}/${NIL_UUID}`, most: limit, rowsOfFile: ROWS_OF_FILE, pages },
    columns: [
      ...namingColumns(serviceIdField),
      ...columns[kind],
      { name: 'app_id', type: 'text' },
      { name: 'properties', type: 'json' },
    ],
    estimate: (after) =>
      estimateRows(connection, workspace.id, { table: kind, after: after.split('/')[0]!, since }),
  };
}

/** The first id that what happened from a time on can have, and the first of that month. */
function acceptedFrom(from: string | null): { since: string; sinceMonth: string } {
  if (from === null) return { since: NIL_UUID, sinceMonth: NIL_UUID };
  const date = new Date(Math.max(0, Date.parse(from) - CLOCKS_APART_MS));
  const month = Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
  return { since: floorOf(date.getTime()), sinceMonth: floorOf(month) };
}

/** Without what is not there. */
const given = (activity: ExportedActivity): ExportedRow =>
  Object.fromEntries(Object.entries(activity).filter(([, value]) => value !== null));
