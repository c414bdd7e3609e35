import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { userInfo } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { findPgBouncer } from './installed.ts';
import { leaveBehind, temporaryFolder } from './left-behind.ts';
import { leasePort } from './ports.ts';
import { waitUntil } from './wait-until.ts';

/** Pooling mode of a PgBouncer. */
export type PgBouncerMode = 'session' | 'transaction' | 'statement';

export interface PgBouncer {
  /** The address of the same database through the pooler. */
  url: string;
  /** Kills it without notice to its clients and servers, and starts it again on the same port. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Checks whether the installed PgBouncer keeps prepared statements in transaction mode, as 1.21 and newer do.
 */
export async function keepsPreparedStatements(): Promise<boolean> {
  const { stdout } = await promisify(execFile)(await findPgBouncer(), ['--version']);
  const [major, minor] = /(\d+)\.(\d+)/.exec(stdout)!.slice(1).map(Number);
  return major! > 1 || minor! >= 21;
}

interface PgBouncerOptions {
  mode: PgBouncerMode;
  /** Server connections; default 20, like PgBouncer's own. */
  poolSize?: number;
  /** Further settings of the section [pgbouncer]. */
  settings?: Record<string, string>;
}

/**
 * Starts a PgBouncer for the Postgres of an address, with default settings except for the mode. The program
 * is
 * `PGBOUNCER`, or the installed one. PgBouncer refuses to run as root, so it becomes `nobody`.
 */
export async function startPgBouncer(
  postgresUrl: string,
  { mode, poolSize = 20, settings = {} }: PgBouncerOptions,
): Promise<PgBouncer> {
  const server = new URL(postgresUrl);
  const folder = temporaryFolder('penstock-pgbouncer-');
  chmodSync(folder, 0o755);
  const port = await leasePort();
  const file = path.join(folder, 'pgbouncer.ini');
  const socket = server.searchParams.get('host') ?? server.hostname;
  const all = {
    ...{ listen_addr: '127.0.0.1', listen_port: String(port), unix_socket_dir: '' },
    ...{ auth_type: 'any', pool_mode: mode, default_pool_size: String(poolSize), max_client_conn: '500' },
    ...settings,
  };
  const target = [
    ...[
      `host=${decodeURIComponent(socket)}`,
      `port=${server.searchParams.get('port') ?? (server.port || 5432)}`,
    ],
    ...[`dbname=${server.pathname.slice(1)}`, `user=${decodeURIComponent(server.username)}`],
    `password=${decodeURIComponent(server.password)}`,
  ];
  const lines = Object.entries(all).map(([name, value]) => `${name} = ${value}`);
  writeFileSync(file, `[databases]\npooled = ${target.join(' ')}\n\n[pgbouncer]\n${lines.join('\n')}\n`);
  chmodSync(file, 0o644);
  const program = await findPgBouncer();
  let child = await start(program, file, port);
  const stop = () => end(child);
  leaveBehind(stop);
  return {
    url: `postgresql://penstock@127.0.0.1:${port}/pooled`,
    async restart() {
      await stop();
      child = await start(program, file, port);
    },
    stop,
  };
}

async function start(program: string, file: string, port: number): Promise<ChildProcess> {
  const isRoot = userInfo().uid === 0;
  const child = spawn(program, [...(isRoot ? ['-u', 'nobody'] : []), '-q', file], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let output = '';
  child.stderr.on('data', (text) => {
    output += text;
  });
  await waitUntil(
    async () => {
      if (child.exitCode !== null) throw new Error(`PgBouncer ended with ${child.exitCode}: ${output}`);
      return accepts(port);
    },
    { what: 'PgBouncer to accept connections' },
  );
  return child;
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
}
