import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import type { Log } from '../log.ts';
import { type Binaries, findBinaries } from './binaries.ts';
import { stopLeftOver } from './left-over.ts';
import { lockDataDir } from './lock.ts';
import { freePort, isPortTaken } from './ports.ts';
import { PortLost, startServer } from './server.ts';
import { chooseServerUser, type ServerUser } from './server-user.ts';

const DATABASE = 'penstock';
const ROLE = 'penstock';

/** The same order and the same messages on every system, whatever locales it has. */
const LOCALE = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];

export interface EmbeddedPostgres {
  url: string;
  /** A server of an earlier start, whose owner was killed, was still running and has been stopped. */
  recovered: boolean;
  /** Resolves when the server has ended, whether asked or not. */
  exited: Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts a Postgres whose data lives in `dataDir`, made on the first call; it listens on loopback only.
 * Beside the cluster lie `password`, `database-url` (for the admin command) and `postgres.log`.
 * @param binaries paths of the programs; those from npm unless told
 * @throws {DataDirInUse} when another process runs it.
 * @throws {Error} with the server's own words when it does not start.
 */
export async function startEmbeddedPostgres(
  dataDir: string,
  log: Log,
  binaries?: Binaries,
): Promise<EmbeddedPostgres> {
  const home = path.resolve(dataDir);
  mkdirSync(home, { recursive: true });
  const unlock = await lockDataDir(home, log);
  try {
    const { initdb, postgres, locale = LOCALE } = binaries ?? (await findBinaries());
    const cluster = path.join(home, 'postgres');
    const user = chooseServerUser(cluster, postgres, home);
    const recovered = await stopLeftOver(cluster, log);
    const password = readPassword(home);
    if (!existsSync(cluster)) await initialise([initdb, ...locale], cluster, password, user);

    const address = (port: number, database: string) =>
      `postgresql://${ROLE}:${password}@127.0.0.1:${port}/${database}`;
    const startOn = async (port: number) => {
      const logFile = path.join(home, 'postgres.log');
      const options = { program: postgres, cluster, port, user, url: address(port, 'postgres'), logFile };
      return { server: await startServer(options, log), url: (database: string) => address(port, database) };
    };
    const { server, url } = await onFreePort(home, startOn, log);
    try {
      await createDatabase(url('postgres'));
    } catch (error) {
      await server.stop();
      throw error;
    }
    writeFileSync(urlFile(home), `${url(DATABASE)}\n`, { mode: 0o600 });
    return {
      url: url(DATABASE),
      recovered,
      exited: server.exited,
      async stop() {
        await server.stop();
        await unlock();
      },
    };
  } catch (error) {
    await unlock();
    throw error;
  }
}

/** Whether a start has made one in `dataDir`. */
export function hasEmbeddedPostgres(dataDir: string): boolean {
  return existsSync(path.join(dataDir, 'postgres'));
}

/** The address of the embedded Postgres of `dataDir`, running or not; undefined when there is none. */
export function readEmbeddedUrl(dataDir: string): string | undefined {
  try {
    return readFileSync(urlFile(dataDir), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

function urlFile(home: string): string {
  return path.join(home, 'database-url');
}

/** The password in `home`, made when there is none: it exists before the cluster that it is for. */
function readPassword(home: string): string {
  const file = path.join(home, 'password');
  if (!existsSync(file)) writeFileSync(file, randomBytes(24).toString('base64url'), { mode: 0o600 });
  return readFileSync(file, 'utf8');
}

/** Makes the cluster beside its place and moves it there, so that a start killed in between leaves no half of one. */
async function initialise(
  initdb: string[],
  cluster: string,
  password: string,
  user: ServerUser,
): Promise<void> {
  const unfinished = `${cluster}.unfinished`;
  const passwordFile = `${cluster}.password`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { mode: 0o700 });
  writeFileSync(passwordFile, password, { mode: 0o600 });
  const { owner } = user;
  if (owner) for (const file of [unfinished, passwordFile]) chownSync(file, owner.uid, owner.gid);
  try {
    const [file, ...args] = [
      ...user.prefix,
      ...initdb,
      `--pgdata=${unfinished}`,
      `--username=${ROLE}`,
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
    ];
    await promisify(execFile)(file!, args, { ...user.ids, cwd: '/' });
    renameSync(unfinished, cluster);
  } catch (error) {
    const { stderr, message } = error as { stderr?: string; message: string };
    throw new Error(`the embedded Postgres could not be made: ${stderr?.trim() || message}`, {
      cause: error,
    });
  } finally {
    rmSync(passwordFile, { force: true });
  }
}

/** Between the choice of a port and the server's own listening, another program can take it. */
const MAX_PORTS = 5;

async function onFreePort<T>(home: string, start: (port: number) => Promise<T>, log: Log): Promise<T> {
  for (let left = MAX_PORTS; ; left--) {
    const port = await choosePort(home);
    try {
      return await start(port);
    } catch (error) {
      if (!(error instanceof PortLost) || left === 1) throw error;
      log.warn({ port }, 'another program has taken the port of the embedded Postgres: trying another one');
    }
  }
}

/** The port of the last start, while it is free. */
async function choosePort(home: string): Promise<number> {
  const url = readEmbeddedUrl(home);
  const last = url ? Number(new URL(url).port) : 0;
  return last && !(await isPortTaken(last)) ? last : freePort();
}

async function createDatabase(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE]);
    if (!rowCount) await client.query(`create database ${DATABASE}`);
  } finally {
    await client.end();
  }
}
