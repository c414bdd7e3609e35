import type { UserSelector } from '../../src/jobs/payloads.ts';
import { type Address, isAddress } from '../../src/profile/identifier.ts';
import type { Connection } from '../../src/store/database.ts';
import { findCandidates, type ProfileRow } from '../../src/store/identifiers.ts';
import { ByIdentifier } from './by-identifier.ts';
import type { Profiles } from './profiles.ts';
import type { WorkItem } from './work-item.ts';

const NOBODY: readonly UserSelector[] = [];

/** The users whom an object chooses by a selector. */
export function selectorsOf(object: WorkItem['object']): readonly UserSelector[] {
  if (object.kind === 'merge') return [object.merge, object.keep];
  return object.kind === 'identify' || object.kind === 'delete' ? [object.user] : NOBODY;
}

/** Takes in everyone among whom the `prioritization` of an identity operation chooses. */
export function candidateLoads(tx: Connection, profiles: Profiles, items: WorkItem[]): (() => unknown)[] {
  const wanted = new ByIdentifier<{ workspaceId: string; address: Address; rows: ProfileRow[] }>();
  let any = false;
  for (const { workspaceId, object } of items) {
    for (const { identifier: address } of selectorsOf(object)) {
      if (!isAddress(address)) continue;
      wanted.set(workspaceId, address, { workspaceId, address, rows: [] });
      any = true;
    }
  }
  if (!any) return [];
  const load = async (column: 'email' | 'phone') => {
    const asked = [...wanted.values()].filter(({ address }) => column in address);
    if (asked.length === 0) return;
    const found = await findCandidates(tx, column, {
      workspaceIds: asked.map(({ workspaceId }) => workspaceId),
      addresses: asked.map(({ address }) => ('email' in address ? address.email : address.phone)),
    });
    for (const row of found) {
      const address = column === 'email' ? { email: row.address } : { phone: row.address };
      wanted.get(row.workspaceId, address)!.rows.push(row);
    }
    for (const { workspaceId, address, rows } of asked) {
      profiles.addCandidates(workspaceId, address, rows);
    }
  };
  return [() => load('email'), () => load('phone')];
}
