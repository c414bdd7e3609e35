import { isUuid } from '../profile/values.ts';
import { isRight, type Permit, type Right, rights } from '../resources/rights.ts';
import type { companyPermissions } from '../schemas/permissions.ts';
import { type Database, storable } from '../store/database.ts';

export { type Right, rights };

/** Company permissions that grant every right in the company. Other accounts have only their workspace permissions. */
const FULL: string[] = ['admin', 'manage_company_settings'] satisfies (typeof companyPermissions)[number][];

/** Maximum number of workspaces that a page loads for one viewer. Further workspaces are looked up when requested. */
const MAX_WORKSPACES = 1000;

export interface Workspace {
  id: string;
  name: string;
}

/** A signed-in user and this user's current rights. */
export interface Viewer {
  /** The account's user name, or BOARD_USER. */
  user: string;
  /** Account id for the log, which contains no names. Absent for BOARD_USER. */
  accountId?: string | undefined;
  /** The account's company. Absent for BOARD_USER, who belongs to no company. */
  companyId?: string | undefined;
  /** Id of the current session; not a secret. */
  sessionId: string;
  /** Whether the viewer has every right in the company, or in all companies for BOARD_USER. */
  full: boolean;
  /** Returns up to 1,000 workspaces in which the viewer has the right, sorted by name. */
  workspacesWith(right: Right): Workspace[];
  /** Finds a workspace by id or name in which the viewer has the right, also beyond the first 1,000. */
  find(right: Right, idOrName: string): Promise<Workspace | undefined>;
  /** Whether the viewer has the right in the workspace. */
  can(right: Right, workspaceId: string): boolean;
}

/**
 * Whether the viewer has the permit: a single right in the given workspace, or in any workspace if none is given. A list
 * of rights always needs a workspace.
 */
export function isPermitted(
  { can, full, accountId, workspacesWith }: Viewer,
  permit: Permit,
  workspaceId?: string,
): boolean {
  if (permit === 'anyone') return true;
  if (permit === 'company') return full;
  if (permit === 'operator') return accountId === undefined;
  if (workspaceId !== undefined) return [permit].flat().every((right) => can(right, workspaceId));
  return isRight(permit) && workspacesWith(permit).length > 0;
}

type Granted = Workspace & { names: ReadonlySet<string> | 'all' };

interface Given extends Pick<Viewer, 'user' | 'accountId' | 'companyId' | 'full'> {
  granted: Granted[];
  /** Finds an accessible workspace that is not in `granted`. */
  lookUp?: (idOrName: string) => Promise<Workspace | null>;
}

function viewerOf({ user, accountId, companyId, full, granted, lookUp }: Given): Viewer {
  const has = ({ names }: Granted, right: Right) =>
    names === 'all' || names.has('admin') || rights[right].some((name) => names.has(name));
  const byId = new Map(granted.map((one) => [one.id, one]));
  return {
    user,
    accountId,
    companyId,
    sessionId: '',
    full,
    workspacesWith: (right) => granted.filter((one) => has(one, right)).map(({ id, name }) => ({ id, name })),
    async find(right, idOrName) {
      const grant = byId.get(idOrName) ?? granted.find(({ name }) => name === idOrName);
      if (grant) return has(grant, right) ? { id: grant.id, name: grant.name } : undefined;
      // A list below the limit is complete, so no lookup is needed.
      const workspace = granted.length < MAX_WORKSPACES ? null : await lookUp?.(idOrName);
      if (!workspace) return undefined;
      byId.set(workspace.id, { ...workspace, names: 'all' });
      return workspace;
    },
    can: (right, workspaceId) => {
      // The operator has every right, so the workspace does not need to be loaded.
      if (accountId === undefined) return isUuid(workspaceId);
      const one = byId.get(workspaceId);
      return one !== undefined && has(one, right);
    },
  };
}

type Prisma = Database['prisma'];

const page = { select: { id: true, name: true }, orderBy: { name: 'asc' }, take: MAX_WORKSPACES } as const;

/** Finds a workspace by primary key or unique name, in the given company or in all companies. */
const lookUpIn = (prisma: Prisma, companyId?: string) => (idOrName: string) =>
  prisma.workspace.findFirst({
    select: page.select,
    where: {
      ...(companyId !== undefined && { companyId }),
      ...(isUuid(idOrName) ? { id: idOrName } : { name: storable(idOrName) }),
    },
  });

/** Creates the viewer for BOARD_USER, who has every right in every company. */
export async function operatorViewer(prisma: Prisma, user: string): Promise<Viewer> {
  const workspaces = await prisma.workspace.findMany(page);
  const granted = workspaces.map((one) => ({ ...one, names: 'all' as const }));
  return viewerOf({ user, full: true, granted, lookUp: lookUpIn(prisma) });
}

/** Creates the viewer for BOARD_USER while Postgres does not answer. Its workspace list is empty. */
export const namelessOperator = (user: string): Viewer => viewerOf({ user, full: true, granted: [] });

/**
 * An element of `accounts.app_groups`, as written by SCIM. Teams have no members here, so they grant no permissions.
 */
interface StoredGroup {
  workspace: string;
  permissions: string[];
  permissionSet?: string;
}

/** An account with its company permissions and workspace permissions. */
interface AccountRights {
  id: string;
  userName: string;
  companyId: string;
  companyPermissions: string[];
  appGroups: unknown;
}

/** Creates the viewer for an account, with the current contents of its permission sets. */
export async function accountViewer(prisma: Prisma, account: AccountRights): Promise<Viewer> {
  const { id: accountId, userName: user, companyId, companyPermissions } = account;
  if (companyPermissions.some((name) => FULL.includes(name))) {
    const workspaces = await prisma.workspace.findMany({ ...page, where: { companyId } });
    return viewerOf({
      user,
      accountId,
      companyId,
      full: true,
      granted: workspaces.map((one) => ({ ...one, names: 'all' })),
      lookUp: lookUpIn(prisma, companyId),
    });
  }
  const groups = (account.appGroups as StoredGroup[]).slice(0, MAX_WORKSPACES);
  if (groups.length === 0) return viewerOf({ user, accountId, companyId, full: false, granted: [] });
  const sets = groups.flatMap(({ permissionSet }) => permissionSet ?? []);
  const [workspaces, permissionSets] = await Promise.all([
    prisma.workspace.findMany({
      ...page,
      where: { companyId, id: { in: groups.map(({ workspace }) => workspace) } },
    }),
    sets.length === 0 ? [] : prisma.permissionSet.findMany({ where: { companyId, id: { in: sets } } }),
  ]);
  const ofSet = new Map(permissionSets.map(({ id, permissions }) => [id, permissions]));
  const ofWorkspace = new Map<string, Set<string>>();
  for (const { workspace, permissions, permissionSet } of groups) {
    const names = ofWorkspace.get(workspace) ?? new Set();
    for (const name of permissionSet === undefined ? permissions : (ofSet.get(permissionSet) ?? []))
      names.add(name);
    ofWorkspace.set(workspace, names);
  }
  return viewerOf({
    user,
    accountId,
    companyId,
    full: false,
    granted: workspaces.map((one) => ({ ...one, names: ofWorkspace.get(one.id) ?? new Set() })),
  });
}
