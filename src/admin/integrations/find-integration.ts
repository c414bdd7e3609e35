import { validate } from 'uuid';
import type { Database } from '../../store/database.ts';
import {
  type SelectedIntegration,
  selectIntegrations,
} from '../../store/integrations/select-integrations.ts';
import { PENSTOCK } from '../command-name.ts';
import { findWorkspaceId } from '../find-workspace.ts';
import { Refusal } from '../refusal.ts';

/** Enough to say where they are. */
const MOST_NAMED = 10;

/**
 * The integration that a person named, by its name or its id.
 *
 * @param workspace name or id of its workspace, where several have one of this name
 * @throws {Refusal} when there is none, or several
 */
export async function findIntegration(
  database: Database,
  nameOrId: string,
  workspace?: string,
): Promise<SelectedIntegration> {
  const workspaceId = await findWorkspaceId(database, workspace);
  const wanted = { workspaceId, limit: MOST_NAMED };
  const named = await selectIntegrations(database.pool, { ...wanted, name: nameOrId });
  const [found, ...others] =
    named.length === 0 && validate(nameOrId)
      ? await selectIntegrations(database.pool, { ...wanted, id: nameOrId })
      : named;
  if (found === undefined)
    throw new Refusal(
      `no integration has the name or the id '${nameOrId}'; see ${PENSTOCK} integrations list`,
    );
  if (others.length > 0) {
    const workspaces = named.map((one) => one.workspace).join(', ');
    throw new Refusal(
      `several workspaces have an integration '${nameOrId}'; name one with --workspace: ${workspaces}`,
    );
  }
  return found;
}
