import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { ConfigError } from '../platform/config.ts';

/**
 * How long a client connection keeps a server session. `none` (no pooler) and `session` (a pooler in session
 * mode): always. `transaction`: for one transaction.
 */
export type PoolMode = 'none' | 'session' | 'transaction';

/** Pooling behaviour of a Postgres address. docs/connection-poolers.md has a table. */
export interface Pooling {
  mode: PoolMode;
  /** Whether a named statement that was prepared in one transaction can be used in the next. */
  keepsNames: boolean;
}

/** A pooler, or its mode, does not support the requested feature. */
export class UnsupportedPooling extends ConfigError {
  override name = 'UnsupportedPooling';
}

const PARAMETER = /[?&]pooling=(none|session|transaction)(?=&|$)/;

/** Adds the mode from the settings to an address. '' means automatic detection. */
export function withPooling(url: string, mode: PoolMode | ''): string {
  if (mode === '' || PARAMETER.test(url)) return url;
  return `${url}${url.includes('?') ? '&' : '?'}pooling=${mode}`;
}

/** Detected modes, and detections in progress, by address. A failed detection is not stored. */
const detected = new Map<string, Pooling>();
const detections = new Map<string, Promise<Pooling>>();

/** Returns the detected pooling of an address, if it is known. */
export function knownPooling(url: string): Pooling | undefined {
  return detected.get(url);
}

/** Makes the next new connection detect the pooling again, after an unexpected server session was seen. */
export function forgetPooling(url: string): void {
  detected.delete(url);
}

/**
 * Detects once per address whether there is a pooler between this process and Postgres, and its mode.
 *
 * @param client newly connected client without a transaction
 * @param openAnother creates a second client for the same address, which is not connected yet
 * @throws {UnsupportedPooling} for a pooler in statement mode
 */
export async function poolingOf(
  url: string,
  client: pg.Client,
  openAnother: () => pg.Client,
): Promise<Pooling> {
  const cached = detected.get(url);
  if (cached) return cached;
  let detection = detections.get(url);
  if (!detection) {
    detection = findPooling(url, client, openAnother).finally(() => detections.delete(url));
    detections.set(url, detection);
    // Each caller awaits the promise. The stored copy has no other handler for its rejection.
    detection.catch(() => {});
  }
  const pooling = await detection;
  detected.set(url, pooling);
  return pooling;
}

async function findPooling(url: string, client: pg.Client, openAnother: () => pg.Client): Promise<Pooling> {
  const set = PARAMETER.exec(url)?.[1] as PoolMode | undefined;
  const mode = set ?? (await findMode(client, openAnother));
  return { mode, keepsNames: mode !== 'transaction' || (await keepsNames(client)) };
}

async function findMode(client: pg.Client, openAnother: () => pg.Client): Promise<PoolMode> {
  const own = await backendOf(client);
  // A pooler sends its own process ids, by which it identifies cancel requests.
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

/**
 * Number of rounds without a change of the server after which it is assumed to be kept. The pooler may choose
 * any free server.
 */
const ROUNDS = 8;

/**
 * Returns whether a transaction of another connection gets the server of the first one, which is idle but
 * connected.
 */
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
 * Returns whether a pooler supports named statements across transactions. Such a pooler (PgBouncer 1.21 or
 * newer with max_prepared_statements, and others) prepares them under its own names, so that our name does
 * not exist on the server.
 */
async function keepsNames(client: pg.Client): Promise<boolean> {
  const name = `penstock-probe-${randomUUID()}`;
  await client.query('begin');
  const { rows } = await client.query<{ found: boolean }>({ name, text: findOwnName, values: [name] });
  const isOurs = rows[0]!.found;
  // Other clients will use this server session.
  if (isOurs) await client.query(`deallocate "${name}"`);
  await client.query('commit');
  return !isOurs;
}

/** Postgres settings of a session; times in milliseconds. */
export type SessionSettings = Readonly<Record<string, number | string>>;

/** Formats settings for the connection parameter `options`. */
export function asOptions(settings: SessionSettings): string {
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
}

/** Formats settings as statements for the session, or only for the transaction (`local`). */
export function asStatements(settings: SessionSettings, scope: 'session' | 'local'): string {
  return Object.entries(settings)
    .map(([name, value]) => `set ${scope} ${name} = '${value}'`)
    .join('; ');
}

const BEGIN = /^\s*(?:begin|start\s+transaction)\b[^;]*/i;
const END = /^\s*(?:commit|end|rollback)\b(?!\s+to\b)/i;

/** Returns whether a statement begins or ends a transaction. */
export function boundOf(text: string): 'begin' | 'end' | undefined {
  if (BEGIN.test(text)) return 'begin';
  return END.test(text) ? 'end' : undefined;
}

/** Inserts settings into a BEGIN statement, before the statements that follow it. */
export function beginWith(text: string, settings: string): string {
  return settings === '' ? text : text.replace(BEGIN, (begin) => `${begin}; ${settings}`);
}
