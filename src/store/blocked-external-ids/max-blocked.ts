/**
 * Most external ids of one workspace that are blocked at once: every edge holds them in memory, and reads them
 * again whenever it looks up an API key of the workspace. So many take it 3.4 ms of a core.
 */
export const MAX_BLOCKED = 10_000;
