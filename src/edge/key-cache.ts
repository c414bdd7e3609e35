import { BlockList, isIPv6 } from 'node:net';
import { LRUCache } from 'lru-cache';
import { together } from '../platform/concurrency.ts';
import { within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { type ApiKeyRow, findApiKeys, hashApiKey } from '../store/credentials.ts';
import type { Pool } from '../store/database.ts';
import type { Channel } from '../store/subscription-states.ts';

export interface ApiKey extends Omit<ApiKeyRow, 'permissions' | 'ipAllowlist' | 'groups' | 'blocked'> {
  permissions: ReadonlySet<string>;
  /** Channels of subscription groups by their ids. */
  groups: ReadonlyMap<string, Channel>;
  /** External ids. */
  blocked: ReadonlySet<string>;
  /** Absent: any address. */
  allowlist: BlockList | undefined;
}

/** What is known of a secret; times in epoch milliseconds. */
interface Known {
  /** Absent: Postgres knows no such key. */
  key: ApiKey | undefined;
  /** The last look-up that Postgres answered. */
  at: number;
  /** The last one that it did not. */
  failedAt: number;
  /** The last one that was made before its time and brought no new group. */
  inVainAt: number;
  /** The last request that asked for it. */
  usedAt: number;
  lookUp: LookUp | undefined;
}

interface LookUp {
  /** Rejects when Postgres did not answer and the key is not known. */
  done: Promise<void>;
  /** Resolves when it is done, or when whoever is known waits no longer. */
  patience: Promise<void>;
}

/** Bounds the memory that keys take, and that made-up ones do. */
const MOST_KEYS = 10_000;

/** How long a known key still opens the door while Postgres does not answer, in ms. */
const STALE_WHILE_DOWN = 60_000;

/** How long the request of a known key waits for a look-up, in ms: many times what one takes. */
const PATIENCE = 250;

/** After a look-up of a key that failed, or that was made before its time and in vain, in ms. */
const PAUSE = 1000;

/** Keys that are looked up together at least, and at most: fewer are looked up when they are asked for. */
const LEAST_TOGETHER = 16;
const MOST_TOGETHER = 1000;

/** Times as long as a key is remembered without being asked for after which it is left to its next request. */
const IN_USE = 4;

/**
 * The cache of API keys: each by its secret, for `cacheMs`. While Postgres does not answer, fails or takes long, a key
 * that was known stays known for a minute. Keys of many workspaces that are in use are looked up together, before their
 * time is over.
 */
export function createKeyCache(pool: Pool, cacheMs: number, log: Log) {
  const known = new LRUCache<string, Known>({ max: MOST_KEYS });
  /** Apart, so that whoever makes keys up takes away none that opens the door while Postgres is away. */
  const madeUp = new LRUCache<string, Known>({ max: MOST_KEYS });
  const findOne = together((hashes: Buffer[]) => findApiKeys(pool, hashes), MOST_TOGETHER);
  let togetherAt = Number.NEGATIVE_INFINITY;

  /** @throws when Postgres does not answer and the key has not been known within the last minute */
  function find(secret: string, now: number): ApiKey | undefined | Promise<ApiKey | undefined> {
    let entry = recall(secret);
    if (!entry) {
      entry = { key: undefined, at: 0, failedAt: 0, inVainAt: 0, usedAt: 0, lookUp: undefined };
      madeUp.set(secret, entry);
    }
    entry.usedAt = now;
    if (known.size >= LEAST_TOGETHER && now - togetherAt >= cacheMs / 4) renewTogether(now);
    const fresh = now - entry.at <= cacheMs;
    const isBackingOff = opens(entry, now) && now - entry.failedAt < PAUSE;
    if (fresh || isBackingOff) return entry.key;
    const looking = entry;
    return look(secret, entry, now).then(() => looking.key);
  }

  function recall(secret: string): Known | undefined {
    return known.get(secret) ?? madeUp.get(secret);
  }

  /**
   * As `find`, without what is remembered: for a caller who names a group that was made just now. When that
   * brings no new group, what was found last stands for a second.
   */
  async function renew(secret: string, now: number): Promise<ApiKey | undefined> {
    const entry = recall(secret);
    if (entry && now - entry.inVainAt >= PAUSE) {
      const groups = entry.key?.groups.size;
      await look(secret, entry, now);
      if (entry.key?.groups.size === groups) entry.inVainAt = now;
    }
    return find(secret, now);
  }

  /** Everyone who asks for a key meanwhile shares one look-up. */
  function look(secret: string, entry: Known, now: number): Promise<void> {
    if (!entry.lookUp) {
      const done = lookUp(secret, entry, now).finally(() => {
        entry.lookUp = undefined;
      });
      entry.lookUp = { done, patience: within(PATIENCE, done).catch(() => {}) };
    }
    return opens(entry, now) ? entry.lookUp.patience : entry.lookUp.done;
  }

  function learn(
    secret: string,
    entry: Known,
    { row, now }: { row: ApiKeyRow | undefined; now: number },
  ): void {
    entry.key = row && toApiKey(row);
    entry.at = now;
    entry.failedAt = 0;
    const [from, to] = entry.key ? [madeUp, known] : [known, madeUp];
    from.delete(secret);
    to.set(secret, entry);
  }

  /** Those in use whose time is half over. Nobody waits for it, and what it does not find out each finds out for itself. */
  function renewTogether(now: number): void {
    togetherAt = now;
    const due: [string, Known][] = [];
    for (const [secret, entry] of known.entries()) {
      if (due.length === MOST_TOGETHER) break;
      const isInUse = now - entry.usedAt <= IN_USE * cacheMs;
      if (isInUse && now - entry.at > cacheMs / 2 && !entry.lookUp) due.push([secret, entry]);
    }
    if (due.length < LEAST_TOGETHER) return;
    const hashes = due.map(([secret]) => hashApiKey(secret));
    findApiKeys(pool, hashes).then(
      (rows) => {
        // Somebody may have looked for himself meanwhile, and knows more.
        for (const [place, [secret, entry]] of due.entries())
          if (entry.at < now && known.peek(secret) === entry) learn(secret, entry, { row: rows[place], now });
      },
      () => {},
    );
  }

  async function lookUp(secret: string, entry: Known, now: number): Promise<void> {
    try {
      const row = await findOne(hashApiKey(secret));
      learn(secret, entry, { row, now });
    } catch (error) {
      entry.failedAt = now;
      if (!opens(entry, now)) throw error;
      log.warn({ err: error }, 'Postgres did not answer; cached API keys stay valid for a minute');
    }
  }

  return { find, renew };
}

/** Whether the key opens the door, if need be without another look. */
function opens({ key, at }: Known, now: number): boolean {
  return key !== undefined && now - at <= STALE_WHILE_DOWN;
}

function toApiKey(row: ApiKeyRow): ApiKey {
  return {
    ...row,
    permissions: new Set(row.permissions),
    groups: new Map(Object.entries(row.groups)),
    blocked: new Set(row.blocked),
    allowlist: toBlockList(row.ipAllowlist),
  };
}

/** Addresses and CIDR ranges, checked when the key was made. */
export function toBlockList(entries: string[]): BlockList | undefined {
  if (entries.length === 0) return undefined;
  const list = new BlockList();
  for (const entry of entries) {
    const [address, prefix] = entry.split('/') as [string, string?];
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (prefix) list.addSubnet(address, Number(prefix), family);
    else list.addAddress(address, family);
  }
  return list;
}
