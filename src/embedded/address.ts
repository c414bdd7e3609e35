import { randomBytes, randomInt } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { keysOf } from '../integrations/source.ts';
import type { Config } from '../platform/config.ts';
import { withRequiredScram } from '../store/database.ts';

/** How clients reach the server: by a Unix socket in a folder of its own, or by a port of loopback. */
export type Transport = 'socket' | 'port';

/** What the path of a Unix socket may have in bytes: 107 on Linux, 103 on macOS. */
const MAX_SOCKET_PATH = 103;

/** Part of the socket's name; in a folder of its own any will do. */
export const SOCKET_PORT = 5432;

/** The role that owns the database. */
export const ROLE = 'penstock';

/** The folder that the socket of the server of `home` lies in; nobody but its owner gets into it. */
export function socketFolder(home: string): string {
  return path.join(home, 'socket');
}

/** By a socket, which nobody else can listen on, unless the path of one would be too long. */
export function transportOf(home: string): Transport {
  const socket = path.join(socketFolder(home), `.s.PGSQL.${SOCKET_PORT}`);
  return Buffer.byteLength(socket) <= MAX_SOCKET_PATH ? 'socket' : 'port';
}

export interface Address {
  /** The absolute data folder. */
  home: string;
  transport: Transport;
  port: number;
  password: string;
  database: string;
}

/** The address as `pg` and libpq read it. On a port, the server has to prove itself: anybody may listen there. */
export function urlOf({ home, transport, port, password, database }: Address): string {
  const host = transport === 'socket' ? encodeURIComponent(socketFolder(home)) : '127.0.0.1';
  const url = `postgresql://${ROLE}:${password}@${host}:${port}/${database}`;
  return transport === 'socket' ? url : withRequiredScram(url);
}

/** Where the address is kept for the admin command, and for people. */
export function urlFile(home: string): string {
  return path.join(home, 'database-url');
}

/**
 * The address of the embedded Postgres of `dataDir`, running or not; undefined when there is none. It never leads to
 * the server of another folder, of which this one may be a copy.
 */
export function readEmbeddedUrl(dataDir: string): string | undefined {
  const home = path.resolve(dataDir);
  let text: string;
  try {
    text = readFileSync(urlFile(home), 'utf8').trim();
  } catch {
    return undefined;
  }
  if (text === '') return undefined;
  const url = new URL(text);
  // Of an earlier release as well, which did not ask for a proof.
  if (!url.hostname.startsWith('%2F')) return withRequiredScram(text);
  url.hostname = encodeURIComponent(socketFolder(home));
  return url.href;
}

/**
 * The address of this installation's Postgres: DATABASE_URL, or in the embedded form the address that npm start keeps in
 * DATA_DIR; undefined if npm start never ran there.
 */
export function databaseUrlOf({
  DEPLOYMENT_FORM,
  DATABASE_URL,
  DATA_DIR,
}: Pick<Config, 'DEPLOYMENT_FORM' | 'DATABASE_URL' | 'DATA_DIR'>): string | undefined {
  return DEPLOYMENT_FORM === 'embedded' ? readEmbeddedUrl(DATA_DIR) : DATABASE_URL;
}

/** Below those that systems give to connections that go out: such a port could be taken before anybody listens on it. */
const FREE_PORTS = { from: 20_000, to: 32_000 };

/** A port of `host` that nobody listens on at this moment. */
export async function freePort(host = '127.0.0.1'): Promise<number> {
  for (let tries = 0; tries < 20; tries++) {
    const port = randomInt(FREE_PORTS.from, FREE_PORTS.to);
    if (!(await isPortTaken(port, host))) return port;
  }
  return tryListen(0, host);
}

/** Whether somebody else listens on the port, or it is not ours to use. */
export async function isPortTaken(port: number, host = '127.0.0.1'): Promise<boolean> {
  return tryListen(port, host).then(
    () => false,
    () => true,
  );
}

/** Listens for an instant. @throws what `listen` reports, for instance `EADDRINUSE` or `EACCES`. */
export function tryListen(port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ port, host, exclusive: true }, () => {
      const address = server.address() as { port: number };
      server.close(() => resolve(address.port));
    });
  });
}

/**
 * The key in `dataDir` that the credentials of integrations are encrypted with, made when there is none: whoever has
 * the folder has the data too.
 * @returns 32 bytes in base64
 */
export function keepIntegrationKey(dataDir: string): string {
  const file = keyFile(dataDir);
  mkdirSync(path.dirname(file), { recursive: true });
  try {
    writeFileSync(file, `${randomBytes(32).toString('base64')}\n`, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return readFileSync(file, 'utf8').trim();
}

/** The same; undefined when none was ever made. */
function readIntegrationKey(dataDir: string): string | undefined {
  try {
    return readFileSync(keyFile(dataDir), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

/**
 * The keys of credentials: those of INTEGRATION_KEY, then, of an embedded installation, the one in DATA_DIR. The first
 * encrypts, any decrypts.
 */
export function integrationKeys({
  INTEGRATION_KEY,
  DEPLOYMENT_FORM,
  DATA_DIR,
}: Pick<Config, 'INTEGRATION_KEY' | 'DEPLOYMENT_FORM' | 'DATA_DIR'>): Buffer[] {
  const kept = DEPLOYMENT_FORM === 'embedded' ? (readIntegrationKey(DATA_DIR) ?? '') : '';
  return keysOf(`${INTEGRATION_KEY},${kept}`);
}

function keyFile(dataDir: string): string {
  return path.join(path.resolve(dataDir), 'integration-key');
}
