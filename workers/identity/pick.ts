import type { UserSelector } from '../../src/jobs/identity.ts';
import { isAddress } from '../../src/profile/identifier.ts';
import type { Prioritization } from '../../src/profile/prioritization.ts';
import { MAX_CANDIDATES } from '../../src/store/profiles/find-candidates.ts';
import type { HeldProfile } from '../track/held-profile.ts';
import { type Found, LOOK_AGAIN, type Profiles } from '../track/profiles.ts';

/** Narrows those who are left, the one updated longest ago first. */
const narrow: Record<Prioritization, (left: HeldProfile[]) => HeldProfile[]> = {
  identified: (left) => left.filter(({ externalId }) => externalId !== null),
  unidentified: (left) => left.filter(({ externalId }) => externalId === null),
  most_recently_updated: (left) => left.slice(-1),
  least_recently_updated: (left) => left.slice(0, 1),
};

/** Raised for an address with more holders than one look can rank. */
export class TooManyCandidates extends Error {
  override name = 'TooManyCandidates';
}

/**
 * The one user whom a selector means; undefined when nobody or more than one is left.
 *
 * @throws {TooManyCandidates}
 */
export function pick(profiles: Profiles, workspaceId: string, selector: UserSelector): Found {
  const { identifier, prioritization = [] } = selector;
  if (!isAddress(identifier)) return profiles.find(workspaceId, identifier);
  let left = profiles.candidates(workspaceId, identifier);
  if (left === LOOK_AGAIN) return LOOK_AGAIN;
  if (left.length > MAX_CANDIDATES) {
    throw new TooManyCandidates(
      `more than ${MAX_CANDIDATES} profiles have the ${'email' in identifier ? 'email address' : 'phone number'}: name the user by another identifier`,
    );
  }
  for (const priority of prioritization) left = narrow[priority](left);
  return left.length === 1 ? left[0] : undefined;
}
