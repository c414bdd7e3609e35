import { randomBytes, randomInt } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { keysOf } from '../integrations/source.ts';
import type { Config } from '../platform/config.ts';
import { withRequiredScram } from '../store/scram-connection.ts';

/**
 * How clients reach the server: through a Unix socket in a private folder, or through a port of the loopback
 * address.
 */
export type Transport = 'socket' | 'port';

/** Maximum bytes of the path of a Unix socket: 107 on Linux, 103 on macOS. */
const MAX_SOCKET_PATH = 103;

/** Number in the name of the socket. Its folder is private, so any number works. */
export const SOCKET_PORT = 5432;

/** The role that owns the database. */
export const ROLE = 'penstock';

/** Returns the folder of the server's socket, which only its owner can access. */
export function socketFolder(home: string): string {
  return path.join(home, 'socket');
}

/** Chooses a socket, on which no other user can listen, unless its path would be too long. */
export function transportOf(home: string): Transport {
  const socket = path.join(socketFolder(home), `.s.PGSQL.${SOCKET_PORT}`);
  return Buffer.byteLength(socket) <= MAX_SOCKET_PATH ? 'socket' : 'port';
}

interface Address {
  /** Absolute path of the data folder. */
  home: string;
  transport: Transport;
  port: number;
  password: string;
  database: string;
}

/**
 * Returns the address in the form of `pg` and libpq. On a port the server must authenticate itself, because
 * any user can listen there.
 */
export function urlOf({ home, transport, port, password, database }: Address): string {
  const host = transport === 'socket' ? encodeURIComponent(socketFolder(home)) : '127.0.0.1';
  const url = `postgresql://${ROLE}:${password}@${host}:${port}/${database}`;
  return transport === 'socket' ? url : withRequiredScram(url);
}

/** Returns the file that keeps the address for the command line and for operators. */
export function urlFile(home: string): string {
  return path.join(home, 'database-url');
}

/**
 * Returns the address of the embedded Postgres of `dataDir`, whether or not it runs; undefined if there is
 * none. If this folder is a copy of another one, the address still refers to this folder.
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
  // An address of an operator or an earlier release may not require the authentication of the server.
  if (!url.hostname.startsWith('%2F')) return withRequiredScram(text);
  url.hostname = encodeURIComponent(socketFolder(home));
  return url.href;
}

/**
 * Returns the address of this installation's Postgres: DATABASE_URL, or in the embedded form the address that
 * npm start stores in DATA_DIR; undefined if npm start never ran there.
 */
export function databaseUrlOf({
  DEPLOYMENT_FORM,
  DATABASE_URL,
  DATA_DIR,
}: Pick<Config, 'DEPLOYMENT_FORM' | 'DATABASE_URL' | 'DATA_DIR'>): string | undefined {
  return DEPLOYMENT_FORM === 'embedded' ? readEmbeddedUrl(DATA_DIR) : DATABASE_URL;
}

/**
 * Ports below the range of outgoing connections: a port in that range could be taken before a program listens
 * on it.
 */
const FREE_PORTS = { from: 20_000, to: 32_000 };

/** Returns a port of `host` on which no program listens at this moment. */
export async function freePort(host = '127.0.0.1'): Promise<number> {
  for (let tries = 0; tries < 20; tries++) {
    const port = randomInt(FREE_PORTS.from, FREE_PORTS.to);
    if (!(await isPortTaken(port, host))) return port;
  }
  return tryListen(0, host);
}

/** Returns whether another program listens on the port, or this user may not use it. */
export async function isPortTaken(port: number, host = '127.0.0.1'): Promise<boolean> {
  return tryListen(port, host).then(
    () => false,
    () => true,
  );
}

/** Listens for a moment. @throws the error of `listen`, for example `EADDRINUSE` or `EACCES`. */
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
 * Returns the key in `dataDir` that encrypts the credentials of integrations, and creates it if it does not
 * exist. The folder also contains the data, so a user who can read the key can read everything.
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

/** Returns the key in `dataDir`; undefined if it was never created. */
function readIntegrationKey(dataDir: string): string | undefined {
  try {
    return readFileSync(keyFile(dataDir), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

/**
 * Returns the keys of credentials: the keys of INTEGRATION_KEY, followed by the key in DATA_DIR in the
 * embedded form. The first key encrypts, and any of them decrypts.
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
