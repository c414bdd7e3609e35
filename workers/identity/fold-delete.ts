import type { AcceptedDelete } from '../../src/jobs/identity.ts';
import type { Changes } from '../track/fold.ts';
import { LOOK_AGAIN } from '../track/profiles.ts';
import type { Work } from '../track/work.ts';
import type { FoldedIdentity } from './fold-identity.ts';
import { pick } from './pick.ts';

/** What waits for the identifier among the dead letters goes with it, even when nobody has it. */
export function foldDelete(
  work: Work,
  { user }: AcceptedDelete,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const found = pick(profiles, work.workspaceId, user);
  if (found === LOOK_AGAIN || (found && !found.holds())) return LOOK_AGAIN;
  identity.deletes.push(work);
  profiles.sealIdentifier(work.workspaceId, user.identifier);
  if (!found) return undefined;
  identity.deleted.push(found);
  profiles.seal(found);
  return undefined;
}
