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
import { evaluateUsers } from '../store/segments.ts';
import { ExportError, type Wanted } from './progress.ts';

/** A row of a file in the form of the API. */
export type ExportedRow = Record<string, Json>;

/** Rows that were read with one query. */
export interface Page {
  rows: ExportedRow[];
  /** Number of rows of the store that were read for the page. */
  read: number;
  /** Number of rows with a truncated list. */
  cut: number;
  /** Position after which the next page begins. */
  last: string;
}

/** Reads the rows of one kind. */
export interface Source {
  /** Position at which the first run begins. */
  first: string;
  /** Maximum rows of a page. */
  maxRowsPerPage: number;
  /** Default maximum number of rows in a file. */
  rowsOfFile: number;
  /**
   * Columns of a Parquet file. A column takes the member with its name; alias columns take the members of
   * `user_alias`.
   */
  columns: ParquetColumn[];
  /** Yields all pages after a position in the order of keys. */
  pages(after: string): AsyncGenerator<Page, void>;
  /** Returns the approximate number of rows after a position. */
  estimate(after: string): Promise<number>;
}

/** Options of a source. */
export interface Reading {
  wanted: Wanted;
  /** Connection in the snapshot of the export. */
  connection: Connection;
  serviceIdField: string;
  /** Checked between two pages. */
  leaving: AbortSignal;
  /** Rows of the store that are read in one query. The default depends on the kind. */
  lookedAt?: number | undefined;
}

/** Number of users whose membership is evaluated in one query. */
const USERS_PER_QUERY = 5000;
/** Number of users that are read in one query. Each of them may have the maximum size of a user. */
const PROFILES_PER_QUERY = 200;
const USERS_OF_FILE = 50_000;

export const allUsers: Definition = { all: [] };

/** Ids of exported users in their order, with the number of users that were evaluated for them. */
interface UsersPage {
  ids: string[];
  read: number;
  last: string;
}

/** Yields the users of the workspace or segment in pages small enough to read all data of their users. */
export async function* pagesOfUsers(
  { wanted, connection, leaving, lookedAt = USERS_PER_QUERY }: Reading,
  after: string,
): AsyncGenerator<UsersPage, void> {
  const definition = wanted.segment?.definition ?? allUsers;
  for (let position = after; ; ) {
    leaving.throwIfAborted();
    const part = { workspaceId: wanted.workspace.id, definition, after: position, limit: lookedAt };
    const { read, sample, last } = await evaluateUsers(connection, { ...part, sample: lookedAt });
    if (last === undefined) return;
    for (let at = 0; at < sample.length; at += PROFILES_PER_QUERY) {
      const ids = sample.slice(at, at + PROFILES_PER_QUERY);
      const isLast = at + PROFILES_PER_QUERY >= sample.length;
      // Further users that are not exported were evaluated after the last id.
      yield { ids, read: isLast ? read : 0, last: isLast ? last : ids.at(-1)! };
      leaving.throwIfAborted();
    }
    if (sample.length === 0) yield { ids: [], read: read, last };
    if (read < lookedAt) return;
    position = last;
  }
}

/** Creates the source of users, ordered by id, with the fields and names of `/users/export/ids`. */
export function profilesSource(reading: Reading): Source {
  const { wanted, connection, serviceIdField, lookedAt = USERS_PER_QUERY } = reading;
  const fieldsByName = userFields(serviceIdField);
  const fields = wanted.fields ?? Object.keys(fieldsByName);
  const shown = fields.map((name) => [name, fieldsByName[name]!] as [string, (typeof fieldsByName)[string]]);
  const workspaceId = wanted.workspace.id;

  async function* pages(after: string): AsyncGenerator<Page, void> {
    for await (const { ids, read, last } of pagesOfUsers(reading, after)) {
      const users = ids.length > 0 ? await readProfiles(connection, workspaceId, { ids, fields }) : [];
      users.sort((one, other) => (one.id < other.id ? -1 : 1));
      yield {
        rows: users.map((user) => toUserObject(user, shown)),
        ...{ read: read, last, cut: users.filter(({ cut }) => cut.length > 0).length },
      };
    }
  }

  return {
    ...{
      first: NIL_UUID,
      maxRowsPerPage: Math.min(PROFILES_PER_QUERY, lookedAt),
      rowsOfFile: USERS_OF_FILE,
      pages,
    },
    columns: shown.map(([name, { schema }]) => ({ name, type: typeOf(schema) })),
    estimate: (after) => estimateRows(connection, workspaceId, { table: 'profiles', after }),
  };
}

type Schema = Record<string, unknown>;

/** Lists and objects are stored as JSON. */
function typeOf({ type, format, enum: listed }: Schema): ParquetColumn['type'] {
  if (type === 'string') return format === 'date-time' ? 'timestamp' : 'text';
  if (listed) return 'text';
  if (type === 'boolean') return 'boolean';
  if (type === 'integer') return 'bigint';
  return type === 'number' ? 'double' : 'json';
}

/**
 * Returns the identifier under which a row is imported again. It is never an address that several users
 * share. The service id is the last choice, because only this installation knows it.
 */
export function nameOf(owner: Owner, serviceIdField: string): ExportedRow {
  const { externalId, aliasName, aliasLabel, ownEmail, ownPhone } = owner;
  if (externalId !== null) return { external_id: externalId };
  if (aliasName !== null) return { user_alias: { alias_name: aliasName, alias_label: aliasLabel } };
  if (ownEmail !== null) return { email: ownEmail };
  if (ownPhone !== null) return { phone: ownPhone };
  return { [serviceIdField]: toServiceId(owner.id) };
}

/** Parquet columns for the identifiers that `nameOf` returns. */
export const namingColumns = (serviceIdField: string): ParquetColumn[] =>
  ['external_id', 'alias_name', 'alias_label', serviceIdField, 'email', 'phone'].map((name) => ({
    name,
    type: 'text',
  }));

/**
 * Finds the current owners of profiles: the users themselves, or the users that they were merged into.
 * @returns owners by profile id, without deleted users
 * @throws {ExportError}
 */
async function ownersOf(
  { wanted, connection }: Reading,
  profileIds: readonly string[],
): Promise<Map<string, Owner>> {
  const workspaceId = wanted.workspace.id;
  const uniqueIds = [...new Set(profileIds)];
  if (uniqueIds.length === 0) return new Map();
  const kept = await followMerges(connection, workspaceId, uniqueIds);
  if (!kept)
    throw new ExportError(
      `more than ${MAX_STEPS} merges follow one another for one of ${uniqueIds.length} users, from ${toServiceId(uniqueIds[0]!)} on`,
    );
  const ids = [...new Set(uniqueIds.map((id) => kept.get(id) ?? id))];
  const definition = wanted.segment?.definition ?? allUsers;
  const ownersById = new Map(
    (await findOwners(connection, workspaceId, { ids, definition })).map((owner) => [owner.id, owner]),
  );
  return new Map(
    uniqueIds.flatMap((id) => {
      const owner = ownersById.get(kept.get(id) ?? id);
      return owner ? [[id, owner] as const] : [];
    }),
  );
}

/** Number of rows that are read in one query. Each of them may have 50 KB of properties. */
const ROWS_PER_QUERY = 500;
const ROWS_OF_FILE = 100_000;
/**
 * Maximum difference between the clocks of two processes in milliseconds. An event happens before it is
 * accepted, so the ids of events since `from` are at most this much older than `from`.
 */
const MAX_CLOCK_DIFFERENCE_MS = 3_600_000;

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

/**
 * Creates the source of events or purchases in the form of `/users/track`, ordered by user id, and for each
 * user in the order in which they were accepted.
 */
export function activitySource(kind: 'events' | 'purchases', reading: Reading): Source {
  const { wanted, connection, serviceIdField, leaving, lookedAt: limit = ROWS_PER_QUERY } = reading;
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
        return owner?.isMeant ? [{ ...nameOf(owner, serviceIdField), ...withoutNulls(row.activity) }] : [];
      });
      [profileId, id] = [last.profileId, last.id];
      yield { rows, read: read.length, cut: 0, last: `${profileId}/${id}` };
      if (read.length < limit) return;
    }
  }

  return {
    ...{ first: `${NIL_UUID}/${NIL_UUID}`, maxRowsPerPage: limit, rowsOfFile: ROWS_OF_FILE, pages },
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

/** Returns the smallest id that an event at or after a time can have, and the smallest id of that month. */
function acceptedFrom(from: string | null): { since: string; sinceMonth: string } {
  if (from === null) return { since: NIL_UUID, sinceMonth: NIL_UUID };
  const date = new Date(Math.max(0, Date.parse(from) - MAX_CLOCK_DIFFERENCE_MS));
  const month = Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
  return { since: floorOf(date.getTime()), sinceMonth: floorOf(month) };
}

/** Omits members that are null. */
const withoutNulls = (activity: ExportedActivity): ExportedRow =>
  Object.fromEntries(Object.entries(activity).filter(([, value]) => value !== null));
