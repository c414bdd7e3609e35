import type { ParquetColumn } from '../object-store/parquet.ts';
import { NIL_UUID } from '../platform/ids.ts';
import { normalizePhone } from '../profile/addresses.ts';
import {
  type ExportedGroupState,
  estimateRows,
  findOwners,
  type Owner,
  readEmailStates,
  readGroupStates,
} from '../store/bulk-export.ts';
import { readProfiles, type StoredUser } from '../store/export.ts';
import {
  allUsers,
  type ExportedRow,
  nameOf,
  namingColumns,
  type Page,
  pagesOfUsers,
  type Reading,
  type Source,
} from './source.ts';

const ROWS_PER_QUERY = 2000;
const ROWS_OF_FILE = 100_000;
/** Maximum number of rows of one user. A workspace has some tens of groups. */
const MAX_ROWS_PER_USER = 1000;

const columnsOf = (serviceIdField: string): ParquetColumn[] => [
  ...namingColumns(serviceIdField),
  { name: 'subscription_group_id', type: 'text' },
  { name: 'subscription_state', type: 'text' },
  { name: 'email_subscribe', type: 'text' },
];

/**
 * Creates the source of group and email subscription states in the form of `penstock import --type
 * subscriptions`.
 */
export function statesSource(reading: Reading): Source {
  return reading.wanted.segment ? ofSegment(reading) : ofAll(reading);
}

/** Reads the tables in the order of their keys: group states, then email states. */
function ofAll(reading: Reading): Source {
  const { wanted, connection, serviceIdField, leaving, lookedAt: limit = ROWS_PER_QUERY } = reading;
  const workspaceId = wanted.workspace.id;

  async function* pages(begin: string): AsyncGenerator<Page, void> {
    let { group, email } = JSON.parse(begin) as Position;
    while (group) {
      leaving.throwIfAborted();
      const read = await readGroupStates(connection, workspaceId, { after: group, limit });
      const last = read.at(-1);
      const rows = await named(read);
      group = last && read.length === limit ? keyOf(last) : undefined;
      yield { rows, read: read.length, cut: 0, last: JSON.stringify({ group, email }) };
    }
    for (;;) {
      leaving.throwIfAborted();
      const read = await readEmailStates(connection, workspaceId, { after: email, limit });
      const last = read.at(-1);
      if (!last) return;
      email = last.email;
      const rows = read.flatMap(({ email, state }) => (state ? [{ email, email_subscribe: state }] : []));
      yield { rows, read: read.length, cut: 0, last: JSON.stringify({ email }) };
      if (read.length < limit) return;
    }
  }

  async function named(states: ExportedGroupState[]): Promise<ExportedRow[]> {
    const ids = states.filter(({ kind }) => kind === 'profile').map(({ subject }) => subject);
    const ownerRows =
      ids.length > 0 ? await findOwners(connection, workspaceId, { ids, definition: allUsers }) : [];
    const owners = new Map(ownerRows.map((owner) => [owner.id, owner]));
    return states.flatMap(({ kind, subject, groupId, state, channel }) => {
      const setting = { subscription_group_id: groupId, subscription_state: state };
      if (kind !== 'profile') return [{ [kind]: subject, ...setting }];
      const owner = owners.get(subject);
      // If the user has an address now, the state of the address applies, which has its own row.
      return owner && lacksAddress(owner, channel) ? [{ ...nameOf(owner, serviceIdField), ...setting }] : [];
    });
  }

  return {
    first: JSON.stringify({ group: { kind: '', subject: '', groupId: NIL_UUID }, email: '' }),
    ...{ maxRowsPerPage: limit, rowsOfFile: ROWS_OF_FILE, pages, columns: columnsOf(serviceIdField) },
    async estimate(after) {
      const groups = (JSON.parse(after) as Position).group
        ? await estimateRows(connection, workspaceId, { table: 'subscription_states' })
        : 0;
      return groups + (await estimateRows(connection, workspaceId, { table: 'email_addresses' }));
    },
  };
}

/** Position in the tables. If `group` is absent, all group states were read. */
interface Position {
  group?: { kind: string; subject: string; groupId: string } | undefined;
  email: string;
}

const keyOf = ({ kind, subject, groupId }: ExportedGroupState) => ({ kind, subject, groupId });

const lacksAddress = ({ hasEmail, hasPhone }: Owner, channel: ExportedGroupState['channel']) =>
  channel === 'email' ? !hasEmail : !hasPhone;

/** Reads the states by user. An address that two users share is exported twice. */
function ofSegment(reading: Reading): Source {
  const { wanted, connection, serviceIdField } = reading;
  const workspaceId = wanted.workspace.id;
  const fields = ['subscription_groups'];

  async function* pages(after: string): AsyncGenerator<Page, void> {
    for await (const { ids, read, last } of pagesOfUsers(reading, after)) {
      const users = ids.length > 0 ? await readProfiles(connection, workspaceId, { ids, fields }) : [];
      const ownerRows =
        ids.length > 0 ? await findOwners(connection, workspaceId, { ids, definition: allUsers }) : [];
      const owners = new Map(ownerRows.map((owner) => [owner.id, owner]));
      users.sort((one, other) => (one.id < other.id ? -1 : 1));
      const rows = users.flatMap((user) => rowsOf(user, nameOf(owners.get(user.id)!, serviceIdField)));
      yield { rows, read: read, last, cut: 0 };
    }
  }

  return {
    ...{ first: NIL_UUID, maxRowsPerPage: MAX_ROWS_PER_USER, rowsOfFile: ROWS_OF_FILE, pages },
    columns: columnsOf(serviceIdField),
    estimate: (after) => estimateRows(connection, workspaceId, { table: 'profiles', after }),
  };
}

/** Converts the states of a user to rows. The email state `subscribed` is the default and is omitted. */
function rowsOf(user: StoredUser, name: ExportedRow): ExportedRow[] {
  const { email, phone, subscription_groups, email_subscribe } = user;
  const number = phone !== null && normalizePhone(phone)?.valid ? phone : null;
  const rows = (subscription_groups ?? []).map(({ id, channel, status }): ExportedRow => {
    const address = channel === 'email' ? { email } : { phone: number };
    const isOfAddress = Object.values(address)[0] !== null;
    const setting = { subscription_group_id: id, subscription_state: status.toLowerCase() };
    return isOfAddress ? { ...(address as ExportedRow), ...setting } : { ...name, ...setting };
  });
  if (email !== null && email_subscribe !== 'subscribed') rows.push({ email, email_subscribe });
  return rows;
}
