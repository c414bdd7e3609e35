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
  type ExportedRow,
  everybody,
  nameOf,
  namingColumns,
  type Page,
  pagesOfUsers,
  type Reading,
  type Source,
} from './source.ts';

const READ = 2000;
const ROWS_OF_FILE = 100_000;
/** Rows that one user makes at most: a workspace has tens of groups. */
const OF_USER = 1000;

const columnsOf = (serviceIdField: string): ParquetColumn[] => [
  ...namingColumns(serviceIdField),
  { name: 'subscription_group_id', type: 'text' },
  { name: 'subscription_state', type: 'text' },
  { name: 'email_subscribe', type: 'text' },
];

/** States of groups and of email addresses as `penstock import --type subscriptions` takes them. */
export function statesSource(reading: Reading): Source {
  return reading.wanted.segment ? ofSegment(reading) : ofAll(reading);
}

/** By the keys of the tables: states of groups, then those of addresses. */
function ofAll(reading: Reading): Source {
  const { wanted, connection, serviceIdField, leaving, lookedAt: limit = READ } = reading;
  const workspaceId = wanted.workspace.id;

  async function* pages(begin: string): AsyncGenerator<Page, void> {
    let { group, email } = JSON.parse(begin) as Place;
    while (group) {
      leaving.throwIfAborted();
      const read = await readGroupStates(connection, workspaceId, { after: group, limit });
      const last = read.at(-1);
      const rows = await named(read);
      group = last && read.length === limit ? keyOf(last) : undefined;
      yield { rows, looked: read.length, cut: 0, last: JSON.stringify({ group, email }) };
    }
    for (;;) {
      leaving.throwIfAborted();
      const read = await readEmailStates(connection, workspaceId, { after: email, limit });
      const last = read.at(-1);
      if (!last) return;
      email = last.email;
      const rows = read.flatMap(({ email, state }) => (state ? [{ email, email_subscribe: state }] : []));
      yield { rows, looked: read.length, cut: 0, last: JSON.stringify({ email }) };
      if (read.length < limit) return;
    }
  }

  async function named(states: ExportedGroupState[]): Promise<ExportedRow[]> {
    const ids = states.filter(({ kind }) => kind === 'profile').map(({ subject }) => subject);
    const found =
      ids.length > 0 ? await findOwners(connection, workspaceId, { ids, definition: everybody }) : [];
    const owners = new Map(found.map((owner) => [owner.id, owner]));
    return states.flatMap(({ kind, subject, groupId, state, channel }) => {
      const says = { subscription_group_id: groupId, subscription_state: state };
      if (kind !== 'profile') return [{ [kind]: subject, ...says }];
      const owner = owners.get(subject);
      // Who has got an address has that one's state.
      return owner && holds(owner, channel) ? [{ ...nameOf(owner, serviceIdField), ...says }] : [];
    });
  }

  return {
    first: JSON.stringify({ group: { kind: '', subject: '', groupId: NIL_UUID }, email: '' }),
    ...{ most: limit, rowsOfFile: ROWS_OF_FILE, pages, columns: columnsOf(serviceIdField) },
    async estimate(after) {
      const groups = (JSON.parse(after) as Place).group
        ? await estimateRows(connection, workspaceId, { table: 'subscription_states' })
        : 0;
      return groups + (await estimateRows(connection, workspaceId, { table: 'email_addresses' }));
    },
  };
}

/** Behind which row: absent, the states of groups are done. */
interface Place {
  group?: { kind: string; subject: string; groupId: string } | undefined;
  email: string;
}

const keyOf = ({ kind, subject, groupId }: ExportedGroupState) => ({ kind, subject, groupId });

const holds = ({ hasEmail, hasPhone }: Owner, channel: ExportedGroupState['channel']) =>
  channel === 'email' ? !hasEmail : !hasPhone;

/** By users: an address that two of them share comes twice. */
function ofSegment(reading: Reading): Source {
  const { wanted, connection, serviceIdField } = reading;
  const workspaceId = wanted.workspace.id;
  const fields = ['subscription_groups'];

  async function* pages(after: string): AsyncGenerator<Page, void> {
    for await (const { ids, looked, last } of pagesOfUsers(reading, after)) {
      const users = ids.length > 0 ? await readProfiles(connection, workspaceId, { ids, fields }) : [];
      const found =
        ids.length > 0 ? await findOwners(connection, workspaceId, { ids, definition: everybody }) : [];
      const owners = new Map(found.map((owner) => [owner.id, owner]));
      users.sort((one, other) => (one.id < other.id ? -1 : 1));
      const rows = users.flatMap((user) => rowsOf(user, nameOf(owners.get(user.id)!, serviceIdField)));
      yield { rows, looked, last, cut: 0 };
    }
  }

  return {
    ...{ first: NIL_UUID, most: OF_USER, rowsOfFile: ROWS_OF_FILE, pages },
    columns: columnsOf(serviceIdField),
    estimate: (after) => estimateRows(connection, workspaceId, { table: 'profiles', after }),
  };
}

/** A state that nobody has said of an address is `subscribed`: it is left out, as is one that was said to be that. */
function rowsOf(user: StoredUser, name: ExportedRow): ExportedRow[] {
  const { email, phone, subscription_groups, email_subscribe } = user;
  const number = phone !== null && normalizePhone(phone)?.valid ? phone : null;
  const rows = (subscription_groups ?? []).map(({ id, channel, status }): ExportedRow => {
    const address = channel === 'email' ? { email } : { phone: number };
    const isOfAddress = Object.values(address)[0] !== null;
    const says = { subscription_group_id: id, subscription_state: status.toLowerCase() };
    return isOfAddress ? { ...(address as ExportedRow), ...says } : { ...name, ...says };
  });
  if (email !== null && email_subscribe !== 'subscribed') rows.push({ email, email_subscribe });
  return rows;
}
