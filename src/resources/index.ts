import type { Resource } from './resource.ts';
import type { PagePermit } from './rights.ts';

/** Where a described resource appears. */
interface Entry {
  load(): Promise<Resource>;
  /**
   * The entry of its page in the menu of the console: group, name and permit. With `within`, the page is a tab of the page at
   * that path instead of a line of the menu.
   */
  menu: { group: MenuGroup; path: string; name: string; permit: PagePermit; within?: string };
  /** Heading of its noun in the help of the command; absent if a file of src/admin/commands adds the noun. */
  help?: HelpGroup;
}

export type MenuGroup = 'Users' | 'Data' | 'Operate';
export type HelpGroup = 'Check and operate:' | 'Users and data:' | 'Workspaces and access:' | 'Connections:';

/** Every described resource by its noun, in the order of the menu and of the help. A command loads only the file of its noun. */
export const descriptions = {
  'preference-centers': {
    load: async () => (await import('./preference-centers.ts')).preferenceCenters,
    menu: { group: 'Users', path: '/preference-centers', name: 'Preference centers', permit: 'centers' },
  },
  groups: {
    load: async () => (await import('./groups.ts')).groups,
    menu: { group: 'Users', path: '/groups', name: 'Groups', permit: 'groups' },
    help: 'Users and data:',
  },
  exports: {
    load: async () => (await import('./exports.ts')).exports,
    menu: { group: 'Users', path: '/exports', name: 'Exports', permit: 'segments' },
  },
  'blocked-ids': {
    load: async () => (await import('./blocked-ids.ts')).blockedIds,
    menu: { group: 'Users', path: '/blocked-ids', name: 'Blocked ids', permit: 'pii' },
  },
  requests: {
    load: async () => (await import('./requests.ts')).requests,
    menu: { group: 'Data', path: '/requests', name: 'Requests', permit: 'delivery' },
    help: 'Check and operate:',
  },
  'refused-objects': {
    load: async () => (await import('./refused-objects.ts')).refusedObjects,
    menu: { group: 'Data', path: '/refused-objects', name: 'Refused objects', permit: 'delivery' },
    help: 'Check and operate:',
  },
  integrations: {
    load: async () => (await import('./integrations.ts')).integrations,
    menu: { group: 'Data', path: '/syncs', name: 'Syncs', permit: 'syncs' },
  },
  imports: {
    load: async () => (await import('./imports.ts')).imports,
    menu: { group: 'Data', path: '/imports', name: 'Imports', permit: 'syncs' },
  },
  streams: {
    load: async () => (await import('./streams.ts')).streams,
    menu: { group: 'Data', path: '/streams', name: 'Streams', permit: 'syncs' },
    help: 'Connections:',
  },
  companies: {
    load: async () => (await import('./companies.ts')).companies,
    menu: { group: 'Operate', path: '/companies', name: 'Companies', permit: 'operator' },
    help: 'Workspaces and access:',
  },
  workspaces: {
    load: async () => (await import('./workspaces.ts')).workspaces,
    menu: { group: 'Operate', path: '/workspaces', name: 'Workspaces', permit: 'usage' },
    help: 'Workspaces and access:',
  },
  limits: {
    load: async () => (await import('./limits.ts')).limits,
    menu: { group: 'Operate', path: '/limits', name: 'Limits', permit: 'usage' },
    help: 'Workspaces and access:',
  },
  keys: {
    load: async () => (await import('./keys.ts')).keys,
    menu: { group: 'Operate', path: '/keys', name: 'API keys', permit: 'keys' },
    help: 'Workspaces and access:',
  },
  accounts: {
    load: async () => (await import('./accounts.ts')).accounts,
    menu: { group: 'Operate', path: '/accounts', name: 'Accounts', permit: 'company' },
    help: 'Workspaces and access:',
  },
  'permission-sets': {
    load: async () => (await import('./permission-sets.ts')).permissionSets,
    menu: {
      ...{ group: 'Operate', path: '/permission-sets', name: 'Permission sets', permit: 'company' },
      within: '/accounts',
    },
    help: 'Workspaces and access:',
  },
  teams: {
    load: async () => (await import('./teams.ts')).teams,
    menu: { group: 'Operate', path: '/teams', name: 'Teams', permit: 'company', within: '/accounts' },
    help: 'Workspaces and access:',
  },
  'scim-tokens': {
    load: async () => (await import('./scim-tokens.ts')).scimTokens,
    menu: {
      ...{ group: 'Operate', path: '/scim-tokens', name: 'SCIM tokens', permit: 'company' },
      within: '/accounts',
    },
    help: 'Workspaces and access:',
  },
} satisfies Record<string, Entry>;

export type Noun = keyof typeof descriptions;

/** The entries of all described resources by noun. */
export const entries = Object.entries(descriptions) as [Noun, Entry][];
