import type { Caller } from '../../src/operations/operation.ts';
import type { Pool } from '../../src/store/database.ts';
import type { Run } from '../../src/store/syncs/find-run.ts';
import { readRules, type WorkspaceRules } from '../../src/store/syncs/read-rules.ts';
import type { Limit } from './pace.ts';

/** What a workspace says about its rows, remembered as long as a web process remembers an API key. */
export interface Rules {
  /** As whom rows are judged now. */
  caller(): Promise<Caller>;
  /** Of /users/track; undefined: the default. */
  limit(): Promise<Limit | undefined>;
}

/** @param cacheMs milliseconds for which a look into the store is remembered */
export function createRules(pool: Pool, run: Pick<Run, 'id' | 'workspaceId'>, cacheMs: number): Rules {
  let known: { at: number; rules: WorkspaceRules; caller: Omit<Caller, 'now'> } | undefined;

  async function look() {
    const now = Date.now();
    if (known && now - known.at <= cacheMs) return known;
    const rules = await readRules(pool, run.workspaceId);
    const [groups, blocked] = [new Set(rules.groups), new Set(rules.blocked)];
    const caller = {
      workspaceId: run.workspaceId,
      requestId: run.id,
      hasGroup: (id: string) => groups.has(id),
      // Asked by operations on groups alone.
      channelOf: () => undefined,
      isBlocked: (externalId: string) => blocked.has(externalId),
    };
    known = { at: now, rules, caller };
    return known;
  }

  return {
    caller: async () => ({ ...(await look()).caller, now: Date.now() }),
    limit: async () => (await look()).rules.limit ?? undefined,
  };
}
