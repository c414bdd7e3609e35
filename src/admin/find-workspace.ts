import { validate } from 'uuid';
import type { Workspace } from '../generated/prisma/client.ts';
import type { Database } from '../store/database.ts';
import { PENSTOCK } from './command-name.ts';
import { Refusal } from './refusal.ts';

/**
 * The workspace that a person named, by its name or its id.
 * @throws {Refusal} when there is none.
 */
export async function findWorkspace({ prisma }: Database, nameOrId: string): Promise<Workspace> {
  const workspace =
    (await prisma.workspace.findUnique({ where: { name: nameOrId } })) ??
    (validate(nameOrId) ? await prisma.workspace.findUnique({ where: { id: nameOrId } }) : null);
  if (workspace === null) {
    throw new Refusal(`no workspace has the name or the id '${nameOrId}'; see ${PENSTOCK} workspaces list`);
  }
  return workspace;
}

/** For filters: the id of the named workspace, or undefined when none is named. */
export async function findWorkspaceId(database: Database, nameOrId?: string): Promise<string | undefined> {
  return nameOrId === undefined ? undefined : (await findWorkspace(database, nameOrId)).id;
}

/** Names by id. */
export async function namesOfWorkspaces({ prisma }: Database, ids: string[]): Promise<Map<string, string>> {
  const workspaces = await prisma.workspace.findMany({ where: { id: { in: [...new Set(ids)] } } });
  return new Map(workspaces.map((workspace) => [workspace.id, workspace.name]));
}
