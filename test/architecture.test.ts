import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../src/package-root.ts';

/** What each room may import from the rooms beside it, in the order in which they build on each other. */
const rooms: Record<string, string[]> = {
  schemas: [],
  profile: ['schemas'],
  jobs: ['schemas', 'profile'],
  store: ['schemas', 'profile', 'jobs', 'integrations', 'generated'],
  queue: ['schemas', 'profile', 'jobs', 'store'],
  limits: ['queue'],
  preferences: ['profile', 'jobs'],
  integrations: ['schemas', 'profile', 'jobs'],
  operations: ['schemas', 'profile', 'jobs', 'store', 'preferences', 'integrations', 'generated'],
  edge: ['schemas', 'profile', 'jobs', 'store', 'queue', 'limits', 'preferences', 'operations'],
  workers: ['schemas', 'profile', 'jobs', 'store', 'queue', 'limits', 'integrations'],
};

/** Modules directly under src that a room may import. */
const shared: Record<string, string[]> = {
  schemas: [],
  profile: [],
  jobs: [],
  limits: ['config', 'package-root'],
  store: ['package-root'],
  queue: ['config', 'ids', 'lifecycle', 'log', 'within'],
  preferences: ['escape-html', 'package-root'],
  integrations: ['within'],
  operations: ['errors', 'ids'],
  edge: [
    'config',
    'errors',
    'escape-html',
    'ids',
    'lifecycle',
    'log',
    'package-root',
    'reachable',
    'readiness',
    'within',
  ],
  workers: [
    'config',
    'database-url',
    'ids',
    'integration-keys',
    'lifecycle',
    'log',
    'metrics-token',
    'readiness',
    'within',
  ],
};

/** Imports against the rule, each with its reason. */
const exceptions = new Map([
  ['src/edge/known-keys.ts src/admin/api-keys.ts', 'a key is hashed in one place, where it is made'],
  ['workers/status-server.ts src/edge/listen.ts', 'every port has the same limits on connections'],
  ['src/edge/authenticate-scim.ts src/admin/api-keys.ts', 'as is a SCIM token'],
  [
    'workers/sync/judge-row.ts src/operations/track/accept.ts',
    'a row is judged as an object of a request is',
  ],
  ['workers/sync/judge-row.ts src/operations/users.delete.ts', 'as is a row of a deletion'],
  ['workers/sync/judge-row.ts src/operations/operation.ts', 'on behalf of the same kind of caller'],
  ['workers/sync/make-chunk.ts src/operations/operation.ts', 'on behalf of the same kind of caller'],
  ['workers/sync/rules.ts src/operations/operation.ts', 'on behalf of the same kind of caller'],
  ['src/store/migrate.ts src/queue/connection.ts', "one command also makes the queue's own tables"],
  ['src/store/migrate.ts src/queue/keep-order.ts', "one command also makes the queue's own tables"],
  ['src/store/migrate.ts src/queue/vacuum-often.ts', "one command also makes the queue's own tables"],
]);

/** Those who may look at the environment, and what for. */
const environment = new Map([
  ['src/config.ts', 'reads every setting'],
  ['src/start.ts', 'hands it on to the processes that it starts'],
  ['src/start/end.ts', 'asks whether npm has started it'],
  ['src/admin/integrations/secret.ts', 'takes a secret from the variable that a person names'],
  ['src/embedded/server.ts', 'hands PATH on to Postgres'],
  ['src/admin/command-name.ts', 'asks by which npm command it was called, to repeat it in hints'],
  ['prisma.config.ts', 'keeps the Prisma command from a download'],
]);

const MOST_LINES = 300;

interface Source {
  file: string;
  text: string;
  /** Files of this repository, and packages by name. */
  imports: string[];
}

const sources = ['src', 'workers', 'scripts', 'test'].flatMap(readSources);
const code = sources.filter(({ file }) => /^(src|workers)\//.test(file));

function readSources(folder: string): Source[] {
  return readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => path.posix.join(folder, name.split(path.sep).join('/')))
    .filter((file) => file.endsWith('.ts') && !file.startsWith('src/generated/'))
    .map((file) => {
      const text = readFileSync(path.join(packageRoot, file), 'utf8');
      return { file, text, imports: importsOf(file, text) };
    });
}

function importsOf(file: string, text: string): string[] {
  const specifiers = text.matchAll(
    /(?:^(?:import|export)\b[^'";]*?\bfrom\s+|^import\s+|\bimport\(\s*)'([^']+)'/gm,
  );
  return [...specifiers].map(([, specifier]) =>
    specifier!.startsWith('.') ? path.posix.join(path.posix.dirname(file), specifier!) : specifier!,
  );
}

/** `workers`, the folder under src, or nothing for a module directly under src. */
function roomOf(file: string): string | undefined {
  if (file.startsWith('workers/')) return 'workers';
  return /^src\/([^/]+)\//.exec(file)?.[1];
}

function isAllowed(room: string, from: string, to: string): boolean {
  if (exceptions.has(`${from} ${to}`)) return true;
  const target = roomOf(to);
  if (target === undefined) return shared[room]!.includes(path.posix.basename(to, '.ts'));
  return target === room || rooms[room]!.includes(target);
}

test('every import of the code is seen', () => {
  const seen = new Set(code.flatMap(({ imports }) => imports));
  expect(seen.size).toBeGreaterThan(100);
  const files = new Set(sources.map(({ file }) => file));
  const relative = [...seen].filter(
    (name) => /^(src|workers)\//.test(name) && !name.startsWith('src/generated/'),
  );
  expect(relative.filter((name) => !files.has(name))).toEqual([]);
});

describe.each(Object.keys(rooms))('%s', (room) => {
  test(`imports only ${[...rooms[room]!, ...shared[room]!].join(', ') || 'what is its own'}`, () => {
    const own = code.filter(({ file }) => roomOf(file) === room);
    expect(own.length).toBeGreaterThan(0);
    const wrong = own.flatMap(({ file, imports }) =>
      imports
        .filter((to) => /^(src|workers)\//.test(to) && !isAllowed(room, file, to))
        .map((to) => `${file} imports ${to}`),
    );
    expect(wrong).toEqual([]);
  });
});

test('nothing imports workers, but workers', () => {
  const wrong = code.filter(
    ({ file, imports }) => !file.startsWith('workers/') && imports.some((to) => to.startsWith('workers/')),
  );
  expect(wrong.map(({ file }) => file)).toEqual([]);
});

test.each([
  ['express', ['edge', 'board']],
  ['bullmq', ['queue', 'workers', 'board', 'store']],
  ['ioredis', ['queue', 'limits']],
  ['pg', ['store', 'queue', 'workers', 'embedded', 'integrations']],
  ['@duckdb/node-api', ['integrations']],
  ['@aws-sdk/client-s3', ['integrations']],
])('%s is known only to %j', (name, allowed) => {
  const users = code.filter(({ imports }) => imports.includes(name)).map(({ file }) => roomOf(file) ?? file);
  expect([...new Set(users)].filter((room) => !allowed.includes(room))).toEqual([]);
});

test('what is large and seldom needed is imported only when a source is opened', () => {
  const large = [
    'src/integrations/postgres-source.ts',
    'src/integrations/files-source.ts',
    'src/integrations/bucket.ts',
  ];
  const opener = sources.find(({ file }) => file === 'src/integrations/open-source.ts')!;
  expect(opener.imports).toEqual(expect.arrayContaining(large));
  expect(opener.text).not.toMatch(/^import [^;]*(postgres-source|files-source|bucket)/m);
  const others = code.filter(({ file, imports }) => {
    if (file === opener.file || /^src\/integrations\/(files|bucket|postgres)/.test(file)) return false;
    return imports.some((name) => large.includes(name) || /^src\/integrations\/(files|bucket)\//.test(name));
  });
  expect(others.map(({ file }) => file)).toEqual([]);
});

test('the rules about profiles, schemas and jobs do no input or output', () => {
  const outward = /^(?:node:)?(?:fs|net|http|https|dns|child_process|worker_threads|timers)\b/;
  const wrong = code.filter(
    ({ file, imports }) =>
      ['schemas', 'profile', 'jobs'].includes(roomOf(file)!) && imports.some((name) => outward.test(name)),
  );
  expect(wrong.map(({ file }) => file)).toEqual([]);
});

test('only the named files look at the environment', () => {
  const wrong = code.filter(({ file, text }) => /\bprocess\.env\b/.test(text) && !environment.has(file));
  expect(wrong.map(({ file }) => file)).toEqual([]);
});

test('every exception is still one', () => {
  const imports = new Set(code.flatMap((source) => source.imports.map((to) => `${source.file} ${to}`)));
  expect([...exceptions.keys()].filter((pair) => !imports.has(pair))).toEqual([]);
  const readers = [...environment.keys()].filter(
    (file) => !readFileSync(path.join(packageRoot, file), 'utf8').includes('process.env'),
  );
  expect(readers).toEqual([]);
});

test(`no file has more than ${MOST_LINES} lines`, () => {
  const long = sources.filter(({ text }) => text.split('\n').length > MOST_LINES + 1);
  expect(long.map(({ file }) => file)).toEqual([]);
});
