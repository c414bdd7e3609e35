import pg from 'pg';
import { v7 } from 'uuid';
import { expect } from 'vitest';
import { runProgram } from '../../src/admin/program.ts';

export interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

export type Run = (args: string[], env?: Record<string, string>) => Promise<Outcome>;

/** Environment variables that every program keeps. */
export const BARE = ['PATH', 'HOME', 'TMPDIR'];

/** Commands run one after the other, because they share the streams and the environment of the test process. */
let last: Promise<unknown> = Promise.resolve();

/** Runs a command in the test process. Its environment has only BARE and `env`. */
export const penstock: Run = (args, env = {}) => {
  const outcome = last.then(() => runHere(args, env));
  last = outcome.catch(() => {});
  return outcome;
};

async function runHere(args: string[], env: Record<string, string>): Promise<Outcome> {
  const { stdout, stderr, stdin, env: ownEnvironment } = process;
  const shown = { stdout: '', stderr: '' };
  const writes = [stdout, stderr].map((stream) => stream.write);
  const collect = (name: 'stdout' | 'stderr') => (chunk: string | Uint8Array) => {
    shown[name] += String(chunk);
    return true;
  };
  const onTerminal = stdin.isTTY;
  stdout.write = collect('stdout');
  stderr.write = collect('stderr');
  stdin.isTTY = false;
  const bare = BARE.flatMap((name) => (name in ownEnvironment ? [[name, ownEnvironment[name]]] : []));
  process.env = { ...Object.fromEntries(bare), ...env };
  try {
    return { code: await runProgram(args), ...shown };
  } finally {
    process.env = ownEnvironment;
    stdin.isTTY = onTerminal;
    [stdout.write, stderr.write] = writes as [typeof stdout.write, typeof stderr.write];
  }
}

export interface PenstockOn {
  /** Runs a command; a string is split at spaces. */
  run(args: string | string[]): Promise<Outcome>;
  /** Runs a command with `--json` and returns its document; expects exit code 0 and an empty stderr. */
  // biome-ignore lint/suspicious/noExplicitAny: the assertions on the document check its shape
  json(args: string | string[]): Promise<any>;
}

/** Returns the command for one database. It runs in the test process unless `through` is `spawnPenstock`. */
export function penstockOn(
  databaseUrl: string,
  env: Record<string, string> = {},
  through: Run = penstock,
): PenstockOn {
  const listed = (args: string | string[]) => (typeof args === 'string' ? args.split(' ') : args);
  const run = (args: string[]) =>
    through(args, { DATABASE_URL: databaseUrl, ALLOWED_NETWORKS: '127.0.0.0/8,::1/128', ...env });
  return {
    run: (args) => run(listed(args)),
    async json(args) {
      const { stdout, ...ending } = await run([...listed(args), '--json']);
      expect(ending).toEqual({ code: 0, stderr: '' });
      return JSON.parse(stdout);
    },
  };
}

/** Expects exit code 1, an empty stdout, and one error line on stderr that contains all `rules`. */
export function expectRefusal({ code, stdout, stderr }: Outcome, ...rules: string[]): void {
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  expect(stderr).toMatch(/^error: /);
  for (const rule of rules) expect(stderr).toContain(rule);
}

/** Inserts workspaces directly into the database and returns their ids in order. */
export async function makeWorkspaces(databaseUrl: string, ...names: string[]): Promise<string[]> {
  const ids = names.map(() => v7());
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client
    .query('insert into workspaces (id, name) select * from unnest($1::uuid[], $2::text[])', [ids, names])
    .finally(() => client.end());
  return ids;
}
