import { BlockList, isIPv6 } from 'node:net';
import { LRUCache } from 'lru-cache';
import { Batcher } from '../platform/batcher.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { type ApiKeyRow, findApiKeys, hashApiKey } from '../store/credentials.ts';
import type { Pool } from '../store/database.ts';
import { isPostgresUnavailable } from '../store/error-cause.ts';
import type { Channel } from '../store/subscription-states.ts';

export interface ApiKey extends Omit<ApiKeyRow, 'permissions' | 'ipAllowlist' | 'groups' | 'blocked'> {
  permissions: ReadonlySet<string>;
  /** Channels of subscription groups by their ids. */
  groups: ReadonlyMap<string, Channel>;
  /** External ids. */
  blocked: ReadonlySet<string>;
  /** Absent: all addresses are allowed. */
  allowlist: BlockList | undefined;
}

/** The cached result for a secret; times in epoch milliseconds. */
interface Known {
  /** Absent: Postgres has no such key. */
  key: ApiKey | undefined;
  /** Time of the last look-up that Postgres answered. */
  at: number;
  /** Time of the last failed look-up. */
  failedAt: number;
  /** Time of the last early look-up that found no new group. */
  inVainAt: number;
  /** Time of the last request that used it. */
  usedAt: number;
  lookUp: LookUp | undefined;
}

interface LookUp {
  /** Rejects if Postgres did not answer and the key is not cached. */
  done: Promise<void>;
  /** Resolves when the look-up is done, or when a request with a cached key stops waiting. */
  patience: Promise<void>;
}

/** Maximum number of entries, for valid and for invalid keys each. Bounds their memory. */
const MAX_KEYS = 10_000;

/** Milliseconds for which a cached key is accepted while Postgres does not answer. */
const STALE_WHILE_DOWN = 60_000;

/** Milliseconds that a request with a cached key waits for a look-up, many times the usual duration. */
const PATIENCE = 250;

/** Milliseconds before the next look-up of a key after a failure, or after an early look-up without a new group. */
const PAUSE = 1000;

/** Minimum and maximum number of keys that are renewed together. Fewer keys are looked up when they are used. */
const MIN_BATCH = 16;
const MAX_BATCH = 1000;

/** Multiple of the cache time after which an unused key is no longer renewed, but looked up at its next request. */
const IN_USE = 4;

/**
 * Caches API keys by their secrets for `cacheMs`. While Postgres does not answer, fails or is slow, a cached key
 * stays valid for a minute. If many keys are in use, they are renewed together before they expire.
 */
export function createKeyCache(pool: Pool, cacheMs: number, log: Log) {
  const validKeys = new LRUCache<string, Known>({ max: MAX_KEYS });
  /**
   * A separate cache, so that invalid keys cannot evict valid ones, which are needed while Postgres is unavailable.
   */
  const madeUp = new LRUCache<string, Known>({ max: MAX_KEYS });
  const lookUps = new Batcher({
    run: (hashes: Buffer[]) => findApiKeys(pool, hashes),
    maxCalls: MAX_BATCH,
    bytesOf: ({ length }) => length,
    isOutage: isPostgresUnavailable,
  });
  let renewedAt = Number.NEGATIVE_INFINITY;

  /** @throws if Postgres does not answer and the key was not confirmed within the last minute */
  function find(secret: string, now: number): ApiKey | undefined | Promise<ApiKey | undefined> {
    let entry = recall(secret);
    if (!entry) {
      entry = { key: undefined, at: 0, failedAt: 0, inVainAt: 0, usedAt: 0, lookUp: undefined };
      madeUp.set(secret, entry);
    }
    entry.usedAt = now;
    if (validKeys.size >= MIN_BATCH && now - renewedAt >= cacheMs / 4) renewAll(now);
    const fresh = now - entry.at <= cacheMs;
    const isBackingOff = opens(entry, now) && now - entry.failedAt < PAUSE;
    if (fresh || isBackingOff) return entry.key;
    const current = entry;
    return refresh(secret, entry, now).then(() => current.key);
  }

  function recall(secret: string): Known | undefined {
    return validKeys.get(secret) ?? madeUp.get(secret);
  }

  /**
   * Looks a key up again, for a request with a group that may have just been created. If that finds no new group, the
   * result is used for a second.
   */
  async function renew(secret: string, now: number): Promise<ApiKey | undefined> {
    const entry = recall(secret);
    if (entry && now - entry.inVainAt >= PAUSE) {
      const groups = entry.key?.groups.size;
      await refresh(secret, entry, now);
      if (entry.key?.groups.size === groups) entry.inVainAt = now;
    }
    return find(secret, now);
  }

  /** Requests that arrive during a look-up of their key share it. */
  function refresh(secret: string, entry: Known, now: number): Promise<void> {
    if (!entry.lookUp) {
      const done = lookUp(secret, entry, now).finally(() => {
        entry.lookUp = undefined;
      });
      entry.lookUp = { done, patience: withTimeout(PATIENCE, done).catch(() => {}) };
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
    const [from, to] = entry.key ? [madeUp, validKeys] : [validKeys, madeUp];
    from.delete(secret);
    to.set(secret, entry);
  }

  /**
   * Renews the keys in use whose time is half over. Requests do not wait for it. If it fails, each key is looked up
   * when it is used.
   */
  function renewAll(now: number): void {
    renewedAt = now;
    const due: [string, Known][] = [];
    for (const [secret, entry] of validKeys.entries()) {
      if (due.length === MAX_BATCH) break;
      const isInUse = now - entry.usedAt <= IN_USE * cacheMs;
      if (isInUse && now - entry.at > cacheMs / 2 && !entry.lookUp) due.push([secret, entry]);
    }
    if (due.length < MIN_BATCH) return;
    const hashes = due.map(([secret]) => hashApiKey(secret));
    findApiKeys(pool, hashes).then(
      (rows) => {
        // A request may have looked its key up meanwhile, with a newer result.
        for (const [index, [secret, entry]] of due.entries())
          if (entry.at < now && validKeys.peek(secret) === entry)
            learn(secret, entry, { row: rows[index], now });
      },
      () => {},
    );
  }

  async function lookUp(secret: string, entry: Known, now: number): Promise<void> {
    try {
      const row = await lookUps.call(hashApiKey(secret));
      learn(secret, entry, { row, now });
    } catch (error) {
      entry.failedAt = now;
      if (!opens(entry, now)) throw error;
      log.warn({ err: error }, 'Postgres did not answer; cached API keys stay valid for a minute');
    }
  }

  return { find, renew };
}

/** Returns whether a key is accepted while Postgres does not answer: it was read at most `STALE_WHILE_DOWN` ms ago. */
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

/** Builds a list of addresses and CIDR ranges, which were validated when the key was created. */
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
