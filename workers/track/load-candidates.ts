import type { UserSelector } from '../../src/jobs/identity.ts';
import { type Address, isAddress } from '../../src/profile/identifier.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import type { Connection } from '../../src/store/database.ts';
import { findCandidates } from '../../src/store/profiles/find-candidates.ts';
import type { ProfileRow } from '../../src/store/profiles/profile-row.ts';
import type { Profiles } from './profiles.ts';
import { scoped, type Work } from './work.ts';

/** Takes in everyone among whom the `prioritization` of an identity operation chooses. */
export function candidateLoads(tx: Connection, profiles: Profiles, works: Work[]): (() => unknown)[] {
  const wanted = new Map<string, { workspaceId: string; address: Address; rows: ProfileRow[] }>();
  for (const { workspaceId, object } of works) {
    for (const { identifier } of selectorsOf(object)) {
      if (!isAddress(identifier)) continue;
      wanted.set(scoped(workspaceId, identifierKey(identifier)), {
        workspaceId,
        address: identifier,
        rows: [],
      });
    }
  }
  if (wanted.size === 0) return [];
  const load = async (column: 'email' | 'phone') => {
    const asked = [...wanted.values()].filter(({ address }) => column in address);
    if (asked.length === 0) return;
    const found = await findCandidates(
      tx,
      column,
      asked.map(({ workspaceId }) => workspaceId),
      asked.map(({ address }) => ('email' in address ? address.email : address.phone)),
    );
    for (const row of found) {
      const address = column === 'email' ? { email: row.address } : { phone: row.address };
      wanted.get(scoped(row.workspaceId, identifierKey(address)))!.rows.push(row);
    }
    for (const { workspaceId, address, rows } of asked) {
      profiles.addCandidates(workspaceId, identifierKey(address), rows);
    }
  };
  return [() => load('email'), () => load('phone')];
}

/** The users whom an object chooses by a selector. */
export function selectorsOf(object: Work['object']): UserSelector[] {
  if (object.kind === 'merge') return [object.merge, object.keep];
  return object.kind === 'identify' || object.kind === 'delete' ? [object.user] : [];
}
