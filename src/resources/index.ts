import type { Resource } from './resource.ts';

/** Every described resource by its noun. A command loads only the file of its noun. */
export const descriptions = {
  groups: async () => (await import('./groups.ts')).groups,
  companies: async () => (await import('./companies.ts')).companies,
  accounts: async () => (await import('./accounts.ts')).accounts,
  teams: async () => (await import('./teams.ts')).teams,
  'permission-sets': async () => (await import('./permission-sets.ts')).permissionSets,
  'scim-tokens': async () => (await import('./scim-tokens.ts')).scimTokens,
  keys: async () => (await import('./keys.ts')).keys,
  workspaces: async () => (await import('./workspaces.ts')).workspaces,
  integrations: async () => (await import('./integrations.ts')).integrations,
  imports: async () => (await import('./imports.ts')).imports,
  exports: async () => (await import('./exports.ts')).exports,
  limits: async () => (await import('./limits.ts')).limits,
  streams: async () => (await import('./streams.ts')).streams,
} satisfies Record<string, () => Promise<Resource>>;

export type Noun = keyof typeof descriptions;
