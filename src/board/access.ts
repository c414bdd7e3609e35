import { isUuid } from '../profile/values.ts';
import { type Right, rights } from '../resources/rights.ts';
import type { companyPermissions } from '../schemas/permissions.ts';
import { type Database, storable } from '../store/database.ts';

export { type Right, rights };

/** Company permissions that open everything of the company; whoever has neither has what workspaces give. */
const FULL: string[] = ['admin', 'manage_company_settings'] satisfies (typeof companyPermissions)[number][];

/** Most workspaces of one person that a page looks into, and knows the names of; of more, those that are asked for. */
const MAX_WORKSPACES = 1000;

export interface Workspace {
  id: string;
  name: string;
}

/** Somebody who has signed in, and what this person may do at this moment. */
export interface Viewer {
  /** The address, or BOARD_USER. */
  user: string;
  /** Absent: BOARD_USER. For the log, which names nobody. */
  accountId?: string | undefined;
  /** Of the account; absent: BOARD_USER, who is of none. */
  companyId?: string | undefined;
  /** Names the session that the person has come with, and opens nothing. */
  sessionId: string;
  /** Whether everything of the company is open; of all companies, where there is no account. */
  full: boolean;
  /** The workspaces in which the person has the right, by name: a thousand at most. */
  workspacesWith(right: Right): Workspace[];
  /** The one of an id, or a name, in which the person has the right, also where there are more. */
  find(right: Right, idOrName: string): Promise<Workspace | undefined>;
  /** Whether the person has the right in the workspace. */
  can(right: Right, workspaceId: string): boolean;
  /** Whether the person has each of these permissions in a workspace of the company: nobody gives more than that. */
  holds(permissions: readonly string[], workspaceId: string): boolean;
}

type Granted = Workspace & { names: ReadonlySet<string> | 'all' };

interface Given extends Pick<Viewer, 'user' | 'accountId' | 'companyId' | 'full'> {
  granted: Granted[];
  /** Looks up one that is not among them, and open all the same. */
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
      const known = byId.get(idOrName) ?? granted.find(({ name }) => name === idOrName);
      if (known) return has(known, right) ? { id: known.id, name: known.name } : undefined;
      // Who has fewer than a page knows has no other.
      const found = granted.length < MAX_WORKSPACES ? null : await lookUp?.(idOrName);
      if (!found) return undefined;
      byId.set(found.id, { ...found, names: 'all' });
      return found;
    },
    can: (right, workspaceId) => {
      // The operator has everything, and need not know its name.
      if (accountId === undefined) return isUuid(workspaceId);
      const one = byId.get(workspaceId);
      return one !== undefined && has(one, right);
    },
    holds: (permissions, workspaceId) => {
      if (full) return true;
      const { names } = byId.get(workspaceId) ?? { names: new Set() };
      return names === 'all' || names.has('admin') || permissions.every((name) => names.has(name));
    },
  };
}

type Prisma = Database['prisma'];

const page = { select: { id: true, name: true }, orderBy: { name: 'asc' }, take: MAX_WORKSPACES } as const;

/** One of the company, or of all. By the primary key, or by the unique name. */
const lookUpIn = (prisma: Prisma, companyId?: string) => (idOrName: string) =>
  prisma.workspace.findFirst({
    select: page.select,
    where: {
      ...(companyId !== undefined && { companyId }),
      ...(isUuid(idOrName) ? { id: idOrName } : { name: storable(idOrName) }),
    },
  });

/** Whoever knows BOARD_USER and its password: everything, in every company. */
export async function operatorViewer(prisma: Prisma, user: string): Promise<Viewer> {
  const workspaces = await prisma.workspace.findMany(page);
  const granted = workspaces.map((one) => ({ ...one, names: 'all' as const }));
  return viewerOf({ user, full: true, granted, lookUp: lookUpIn(prisma) });
}

/** The same while Postgres does not answer: no workspace is known then. */
export const namelessOperator = (user: string): Viewer => viewerOf({ user, full: true, granted: [] });

/** An element of `accounts.app_groups`, as SCIM writes it. Teams hold no users here, so that theirs give nothing. */
interface StoredGroup {
  workspace: string;
  permissions: string[];
  permissionSet?: string;
}

/** What an account has of its company and of workspaces. */
export interface AccountRights {
  id: string;
  userName: string;
  companyId: string;
  companyPermissions: string[];
  appGroups: unknown;
}

/** Those of a company and of its workspaces, permission sets looked up as they are now. */
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
  const [workspaces, found] = await Promise.all([
    prisma.workspace.findMany({
      ...page,
      where: { companyId, id: { in: groups.map(({ workspace }) => workspace) } },
    }),
    sets.length === 0 ? [] : prisma.permissionSet.findMany({ where: { companyId, id: { in: sets } } }),
  ]);
  const ofSet = new Map(found.map(({ id, permissions }) => [id, permissions]));
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
