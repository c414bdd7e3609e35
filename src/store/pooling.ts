import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { ConfigError } from '../platform/config.ts';

/**
 * How long one connection of ours keeps one server session: always (`none`: no pooler; `session`: a pooler that keeps
 * the two together), or for one transaction.
 */
export type PoolMode = 'none' | 'session' | 'transaction';

/** What is known of the address of a Postgres. docs/connection-poolers.md has the table. */
export interface Pooling {
  mode: PoolMode;
  /** Whether a named statement that was prepared in one transaction is there in the next. */
  keepsNames: boolean;
}

/** A pooler, or a mode of one, that cannot be used for what was asked. */
export class UnsupportedPooling extends ConfigError {
  override name = 'UnsupportedPooling';
}

const PARAMETER = /[?&]pooling=(none|session|transaction)(?=&|$)/;

/** Adds the mode that an operator has set to an address; '' leaves it to detection. */
export function withPooling(url: string, mode: PoolMode | ''): string {
  if (mode === '' || PARAMETER.test(url)) return url;
  return `${url}${url.includes('?') ? '&' : '?'}pooling=${mode}`;
}

/** By address: what was found out, or is being found out. A failed attempt is forgotten. */
const found = new Map<string, Pooling>();
const looking = new Map<string, Promise<Pooling>>();

/** What has been found out about an address so far. */
export function knownPooling(url: string): Pooling | undefined {
  return found.get(url);
}

/** Lets the next new connection find out again: another server session answered than was expected. */
export function forgetPooling(url: string): void {
  found.delete(url);
}

/**
 * Finds out once for each address whether a pooler stands before Postgres, and in which mode.
 *
 * @param client newly connected, and in no transaction
 * @param openAnother a second connection to the same address, not connected yet
 * @throws {UnsupportedPooling} for a pooler that hands out servers by statement
 */
export async function poolingOf(
  url: string,
  client: pg.Client,
  openAnother: () => pg.Client,
): Promise<Pooling> {
  const known = found.get(url);
  if (known) return known;
  let look = looking.get(url);
  if (!look) {
    look = findPooling(url, client, openAnother).finally(() => looking.delete(url));
    looking.set(url, look);
    // Each caller awaits it; the copy in the map has no other listener.
    look.catch(() => {});
  }
  const pooling = await look;
  found.set(url, pooling);
  return pooling;
}

async function findPooling(url: string, client: pg.Client, openAnother: () => pg.Client): Promise<Pooling> {
  const set = PARAMETER.exec(url)?.[1] as PoolMode | undefined;
  const mode = set ?? (await findMode(client, openAnother));
  return { mode, keepsNames: mode !== 'transaction' || (await keepsNames(client)) };
}

async function findMode(client: pg.Client, openAnother: () => pg.Client): Promise<PoolMode> {
  const own = await backendOf(client);
  // A pooler announces process ids of its own, with which it recognises requests to cancel.
  if (own === (client as unknown as { processID: number }).processID) return 'none';
  const other = openAnother();
  other.on('error', () => {});
  try {
    await other.connect();
    return (await sharesServers(client, own, other)) ? 'transaction' : 'session';
  } finally {
    await other.end().catch(() => {});
  }
}

/** Rounds without a change of the server, after which it is taken to be kept: chance decides which one is handed out. */
const ROUNDS = 8;

/** Whether a transaction of another connection gets the server of the first one, which rests but is still connected. */
async function sharesServers(client: pg.Client, own: number, other: pg.Client): Promise<boolean> {
  for (let round = 0; round < ROUNDS; round++) {
    await other.query('begin').catch((error: Error) => {
      throw refusalOf(error);
    });
    const others = await backendOf(other);
    if (others === own || (await backendOf(client)) !== own) return true;
    await other.query('rollback');
  }
  return false;
}

async function backendOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]!.pid;
}

function refusalOf(error: Error): Error {
  if (!/statement pooling/i.test(error.message)) return error;
  return new UnsupportedPooling(
    'DATABASE_URL leads through a connection pooler in statement mode, which allows no transactions: set pool_mode to transaction or session there, or set DATABASE_URL to the address of Postgres itself',
  );
}

const findOwnName = 'select exists (select from pg_prepared_statements where name = $1) as found';

/**
 * Whether a pooler keeps named statements over transactions. One that does (PgBouncer 1.21 or newer with
 * max_prepared_statements, and others) prepares them under names of its own: ours is not there then.
 */
async function keepsNames(client: pg.Client): Promise<boolean> {
  const name = `penstock-probe-${randomUUID()}`;
  await client.query('begin');
  const { rows } = await client.query<{ found: boolean }>({ name, text: findOwnName, values: [name] });
  const isOurs = rows[0]!.found;
  // The server session belongs to others in a moment.
  if (isOurs) await client.query(`deallocate "${name}"`);
  await client.query('commit');
  return !isOurs;
}

/** Settings of Postgres for a session, times in milliseconds. */
export type SessionSettings = Readonly<Record<string, number | string>>;

/** In the form of the parameter `options` with which a connection starts. */
export function asOptions(settings: SessionSettings): string {
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
}

/** As statements, for the session or for the transaction alone (`local`). */
export function asStatements(settings: SessionSettings, scope: 'session' | 'local'): string {
  return Object.entries(settings)
    .map(([name, value]) => `set ${scope} ${name} = '${value}'`)
    .join('; ');
}

const BEGIN = /^\s*(?:begin|start\s+transaction)\b[^;]*/i;
const END = /^\s*(?:commit|end|rollback)\b(?!\s+to\b)/i;

/** What a statement does to the transaction of its connection. */
export function boundOf(text: string): 'begin' | 'end' | undefined {
  if (BEGIN.test(text)) return 'begin';
  return END.test(text) ? 'end' : undefined;
}

/** The statement that begins a transaction, followed by these settings and then by its own. */
export function beginWith(text: string, settings: string): string {
  return settings === '' ? text : text.replace(BEGIN, (begin) => `${begin}; ${settings}`);
}
