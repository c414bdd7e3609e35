import { execFile } from 'node:child_process';
import path from 'node:path';
import pg from 'pg';
import { v7 } from 'uuid';
import { expect } from 'vitest';
import { packageRoot } from '../../src/package-root.ts';

export interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

/**
 * Runs the compiled command as a person or a script would, with nothing in its environment but `env` and
 * what a program needs to run at all.
 */
export function penstock(args: string[], env: Record<string, string> = {}): Promise<Outcome> {
  const { PATH, HOME } = process.env;
  const file = path.join(packageRoot, 'dist/src/cli.js');
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [file, ...args],
      { cwd: packageRoot, env: { PATH, HOME, ...env } },
      (error, stdout, stderr) => resolve({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr }),
    );
  });
}

export interface PenstockOn {
  /** Arguments in one string are parted at its spaces. */
  run(args: string | string[]): Promise<Outcome>;
  /** With `--json`: the one document on stdout, of a command that ends with 0 and says nothing on stderr. */
  // biome-ignore lint/suspicious/noExplicitAny: the assertions on the document check its shape
  json(args: string | string[]): Promise<any>;
}

/** The command on one database. */
export function penstockOn(databaseUrl: string, env: Record<string, string> = {}): PenstockOn {
  const listed = (args: string | string[]) => (typeof args === 'string' ? args.split(' ') : args);
  const run = (args: string[]) => penstock(args, { DATABASE_URL: databaseUrl, ...env });
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

/** Makes workspaces past the command, which takes its time to start; their ids, in order. */
export async function makeWorkspaces(databaseUrl: string, ...names: string[]): Promise<string[]> {
  const ids = names.map(() => v7());
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client
    .query('insert into workspaces (id, name) select * from unnest($1::uuid[], $2::text[])', [ids, names])
    .finally(() => client.end());
  return ids;
}
