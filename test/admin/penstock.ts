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

/** What any program has in its environment, whatever else it is given. */
export const BARE = ['PATH', 'HOME', 'TMPDIR'];

/** Commands that run in this process share its streams and its environment: one at a time. */
let last: Promise<unknown> = Promise.resolve();

/** Runs the command in this process, with nothing in its environment but `env` and what a program needs to run at all. */
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
  /** Arguments in one string are parted at its spaces. */
  run(args: string | string[]): Promise<Outcome>;
  /** With `--json`: the one document on stdout, of a command that ends with 0 and says nothing on stderr. */
  // biome-ignore lint/suspicious/noExplicitAny: the assertions on the document check its shape
  json(args: string | string[]): Promise<any>;
}

/** The command on one database, in this process unless `through` is `spawnPenstock`. */
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

/** Refused: nothing on stdout, and on stderr one line that says `rule`. */
export function expectRefusal({ code, stdout, stderr }: Outcome, ...rules: string[]): void {
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  expect(stderr).toMatch(/^error: /);
  for (const rule of rules) expect(stderr).toContain(rule);
}

/** Makes workspaces past the command; their ids, in order. */
export async function makeWorkspaces(databaseUrl: string, ...names: string[]): Promise<string[]> {
  const ids = names.map(() => v7());
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client
    .query('insert into workspaces (id, name) select * from unnest($1::uuid[], $2::text[])', [ids, names])
    .finally(() => client.end());
  return ids;
}
