import { readFileSync } from 'node:fs';
import { Server } from 'node:http';
import { Socket } from 'node:net';
import path from 'node:path';
import pg from 'pg';
import { expect, test } from 'vitest';
import { packageRoot } from '../src/platform/files.ts';
import { isOurs, sources } from './setup/sources.ts';

/**
 * Modules, and for each of them the modules that it may import, in the order in which they build on each
 * other.
 * `errors` is src/errors.ts, the catalogue of error responses; `metrics` is workers/metrics.ts.
 */
const rooms: Record<string, string[]> = {
  profile: [],
  schemas: ['profile'],
  errors: ['profile'],
  platform: ['schemas'],
  jobs: ['profile'],
  integrations: ['platform'],
  'object-store': ['platform', 'profile', 'integrations'],
  streams: ['platform', 'integrations', 'object-store'],
  preferences: ['platform', 'profile', 'jobs'],
  store: ['platform', 'profile', 'jobs', 'integrations', 'generated'],
  queue: ['platform', 'schemas', 'profile', 'jobs', 'store'],
  limits: ['platform', 'schemas', 'store', 'queue'],
  retention: ['platform', 'store', 'object-store'],
  embedded: ['platform', 'integrations', 'store'],
  checks: ['platform', 'store', 'queue'],
  processes: ['platform', 'schemas', 'profile', 'store', 'queue', 'embedded', 'checks'],
  operations: [
    ...['errors', 'platform', 'schemas', 'profile', 'jobs'],
    ...['preferences', 'integrations', 'store', 'generated'],
  ],
  export: ['platform', 'object-store', 'profile', 'store', 'operations'],
  resources: [
    ...['errors', 'platform', 'schemas', 'profile', 'jobs', 'integrations', 'object-store', 'streams'],
    ...['preferences', 'store', 'retention', 'embedded', 'generated', 'queue', 'operations', 'export'],
  ],
  docs: ['platform', 'profile'],
  import: [
    'errors',
    'platform',
    'schemas',
    'profile',
    'jobs',
    'integrations',
    'store',
    'queue',
    'operations',
  ],
  edge: [
    ...['errors', 'platform', 'schemas', 'profile', 'jobs', 'preferences'],
    ...['store', 'queue', 'limits', 'processes', 'operations', 'docs', 'object-store', 'export', 'checks'],
  ],
  board: [
    ...['generated', 'platform', 'schemas', 'profile', 'jobs'],
    ...['preferences', 'store', 'queue', 'processes', 'operations', 'resources', 'checks'],
  ],
  admin: [
    ...['platform', 'profile', 'integrations', 'generated', 'preferences'],
    ...['store', 'queue', 'processes', 'operations', 'import', 'object-store', 'export'],
    ...['retention', 'resources', 'checks'],
  ],
  start: [
    'admin',
    'resources',
    'platform',
    'profile',
    'integrations',
    'processes',
    'embedded',
    'store',
    'queue',
  ],
  metrics: ['platform', 'queue', 'processes'],
  'workers/batch': ['metrics', 'platform', 'schemas', 'profile', 'jobs', 'store', 'queue'],
  'workers/fence': ['metrics', 'platform', 'jobs', 'store', 'queue'],
  'workers/lane': ['metrics', 'platform', 'profile', 'store', 'queue', 'workers/batch', 'workers/fence'],
  'workers/upkeep': ['platform', 'store', 'queue', 'retention', 'workers/batch'],
  'workers/jobs': ['platform', 'store'],
  'workers/streams': ['platform', 'profile', 'store', 'processes', 'streams', 'workers/jobs'],
  'workers/sync': [
    ...['errors', 'platform', 'schemas', 'profile', 'jobs', 'integrations', 'store', 'queue', 'limits'],
    ...['processes', 'operations', 'workers/jobs', 'retention', 'object-store', 'export'],
  ],
};

/**
 * Files outside of the modules: the entry point of each process and command. Other files do not import them.
 */
const entryNames =
  'src/web src/board src/release src/prepare src/start src/dev src/cli src/health src/testing workers/worker workers/sync';
const entries = entryNames.split(' ').map((name) => `${name}.ts`);

/** A member with an underscore in the declaration of a type. */
const SNAKE_CASE = /\b[a-z]+(?:_[a-z0-9]+)+\??:(?= |$)/;
/**
 * A member with an underscore in a type inside other code. The type after it distinguishes it from a member
 * of a value.
 */
const SNAKE_CASE_TYPE =
  /\b[a-z]+(?:_[a-z0-9]+)+\??: (?:[^,;(){}]*;|(?:string|number|boolean|[A-Z]\w*[a-z])[^,;(){}]*\})/;

const code = sources.filter(({ file }) => /^(src|workers)\//.test(file));

/**
 * Returns the module of a file: its folder under src, `workers/` and its folder, or the name of a file
 * without a folder.
 */
function roomOf(file: string): string {
  if (entries.includes(file)) return file;
  const [, top, folder] = /^(src|workers)\/(?:([^/]+)\/)?/.exec(file)!;
  if (folder === undefined) return path.posix.basename(file, '.ts');
  return top === 'workers' ? `workers/${folder}` : folder;
}

test('every imported file of this repository is among the sources', () => {
  const seen = new Set(code.flatMap(({ imports }) => imports));
  expect(seen.size).toBeGreaterThan(100);
  const files = new Set(sources.map(({ file }) => file));
  const relative = [...seen].filter((name) => isOurs(name) && !name.startsWith('src/generated/'));
  expect(relative.filter((name) => !files.has(name))).toEqual([]);
});

test('every file belongs to a module, or is a process', () => {
  const lost = code.filter(({ file }) => !Object.hasOwn(rooms, roomOf(file)));
  expect(lost.map(({ file }) => file).sort()).toEqual([...entries].sort());
});

test('a module imports only modules that are listed before it', () => {
  const names = Object.keys(rooms);
  const wrong = names.flatMap((owner, position) =>
    rooms[owner]!.filter((other) => other !== 'generated' && !names.slice(0, position).includes(other)),
  );
  expect(wrong).toEqual([]);
});

test.each(Object.keys(rooms))('%s imports only the modules that its list allows', (owner) => {
  const own = code.filter(({ file }) => roomOf(file) === owner);
  expect(own.length).toBeGreaterThan(0);
  const wrong = own.flatMap(({ file, imports }) =>
    imports
      .filter((to) => isOurs(to) && roomOf(to) !== owner && !rooms[owner]!.includes(roomOf(to)))
      .map((to) => `${file} imports ${to}`),
  );
  expect(wrong).toEqual([]);
});

test('each module uses every module that it may import', () => {
  const idle = Object.entries(rooms).flatMap(([owner, allowed]) => {
    const own = code.filter(({ file }) => roomOf(file) === owner);
    const used = new Set(own.flatMap(({ imports }) => imports.filter(isOurs).map(roomOf)));
    return allowed.filter((other) => !used.has(other)).map((other) => `${owner} does not need ${other}`);
  });
  expect(idle).toEqual([]);
});

test('no file imports a process, except the command and penstock dev, which run them', () => {
  const wrong = code.flatMap(({ file, imports }) =>
    imports.filter((to) => entries.includes(to)).map((to) => `${file} imports ${to}`),
  );
  const run = ['web.ts', 'board.ts'].map((name) => `src/dev.ts imports src/${name}`);
  const work = ['worker.ts', 'sync.ts'].map((name) => `src/dev.ts imports workers/${name}`);
  const started = ['start.ts', 'dev.ts'].map((name) => `src/cli.ts imports src/${name}`);
  expect(wrong.sort()).toEqual([...started, ...run, ...work].sort());
});

test('production is src and workers and imports no tools or tests; tools import no vitest', () => {
  const { include } = JSON.parse(readFileSync(path.join(packageRoot, 'tsconfig.build.json'), 'utf8'));
  expect(include).toEqual(['src', 'workers']);
  const wrong = sources.flatMap(({ file, imports }) => {
    const unknown = isOurs(file) ? /^(?:test|tools)\// : /^vitest$|\.test\.ts$/;
    return file.startsWith('test/') ? [] : imports.filter((to) => unknown.test(to)).map((to) => [file, to]);
  });
  expect(wrong).toEqual([]);
});

test('the pattern of an id is written once', () => {
  const patterns = code.filter(({ text }) => text.includes('[0-9a-f]{8}'));
  expect(patterns.map(({ file }) => file)).toEqual(['src/profile/values.ts']);
});

test('members of types of the store and the workers are camelCase', () => {
  const inner = code.filter(({ file }) => /^(?:src\/store|workers)\//.test(file));
  const matches = inner.flatMap(({ file, text }) => {
    let [kind, name] = ['', ''];
    return text.split('\n').flatMap((line) => {
      if (/^[a-z]/.test(line))
        [, kind = '', name = ''] =
          /^(?:export )?(?:async )?(interface|type|const|class|function)\b\W*(\w+)/.exec(line) ?? [];
      if (/^\s*(?:\*|\/[*/])/.test(line)) return [];
      const member = kind === 'interface' || kind === 'type' ? SNAKE_CASE : SNAKE_CASE_TYPE;
      return member.test(line) ? [`${path.posix.basename(file)} ${name}`] : [];
    });
  });
  expect(matches).toEqual([]);
});

/** Files that read the machine's time. All others read the clock of the product. */
const readMachineTime = [
  ...['src/platform/clock.ts', 'src/platform/files.ts', 'src/platform/log.ts', 'src/platform/poll.ts'],
  ...['src/board/history.ts', 'src/board/lockouts.ts', 'src/board/openid-connect.ts'],
  // A job has the time of the queue's server.
  ...['src/board/pages/requests.ts', 'src/queue/server-clock.ts'],
  'src/board/sessions.ts',
  ...['src/checks/read.ts', 'src/checks/text.ts', 'src/processes/dependencies.ts', 'src/processes/readyz.ts'],
  ...['src/edge/control/clock.ts', 'src/edge/control/control.ts', 'src/edge/heads.ts'],
  ...['src/embedded/data-dir.ts', 'src/embedded/server.ts', 'src/object-store/folder-store.ts'],
  ...['src/processes/heartbeat.ts', 'src/store/migrations.ts', 'src/store/write-refusals.ts'],
  // The age of a file is compared with the machine's time.
  'src/processes/last-words.ts',
  // The deadline of a move.
  'src/resources/move-workspace.ts',
  // Receivers compare the time of a signature with their own.
  'src/streams/webhook.ts',
];

test("the product reads its own clock, except in the listed files that need the machine's time", () => {
  // Commands, imports and starts are separate processes, whose clock cannot be set.
  const readers = code.filter(
    ({ file, text }) =>
      /\bDate\.now\b|\bnew Date\(\)/.test(text) && !/^src\/(?:admin|import|start)[/.]/.test(file),
  );
  expect(readers.map(({ file }) => file).sort()).toEqual(readMachineTime.sort());
});

test('only the control endpoints set the clock', () => {
  const setters = code.filter(({ text }) => /\b(?:setClock|setStoreClock|penstock_clock)\b/.test(text));
  expect(setters.map(({ file }) => file).sort()).toEqual([
    ...['src/edge/control/clock.ts', 'src/platform/clock.ts'],
    ...['src/store/control-functions.ts', 'src/store/snapshots.ts'],
  ]);
});

test('imports between files have no cycle', () => {
  const beneath = new Map(code.map(({ file, imports }) => [file, imports.filter(isOurs)]));
  const done = new Set<string>();
  const circleFrom = (file: string, chain: string[]): string[] | undefined => {
    if (chain.includes(file)) return [...chain.slice(chain.indexOf(file)), file];
    if (done.has(file)) return undefined;
    for (const next of beneath.get(file) ?? []) {
      const circle = circleFrom(next, [...chain, file]);
      if (circle) return circle;
    }
    done.add(file);
    return undefined;
  };
  for (const { file } of code) expect(circleFrom(file, [])?.join(' < ')).toBeUndefined();
});

test.each([
  ['express', ['edge', 'board']],
  ['bullmq', ['queue', 'workers/upkeep', 'workers/sync']],
  ['ioredis', ['queue', 'limits']],
  ['pg', ['store', 'queue', 'workers/lane', 'workers/fence', 'embedded', 'integrations', 'processes']],
  ['@duckdb/node-api', ['integrations', 'object-store']],
  ['@aws-sdk/client-s3', ['integrations', 'object-store']],
])('%s is imported only by %j', (name, allowed) => {
  const users = code.filter(({ imports }) => imports.includes(name)).map(({ file }) => roomOf(file));
  expect([...new Set(users)].filter((owner) => !allowed.includes(owner))).toEqual([]);
});

/** Files that keep the lanes in queues of BullMQ; all others use the interface of src/queue/lane-store.ts. */
const laneStores = [
  ...['add-jobs', 'bullmq', 'bullmq-queues', 'lane-producer', 'postgres-queue'],
  ...['lane-store-bullmq', 'lane-store-redis', 'lane-store-postgres'],
].map((name) => `src/queue/${name}.ts`);

/** Other files that use BullMQ, each with its reason. */
const knowBullmq: Record<string, string> = {
  'src/queue/connection.ts': 'opens the connections that the classes of BullMQ are given',
  'src/queue/syncs.ts': 'the queue of sync runs is no lane: it uses job schedulers',
  'workers/sync/start.ts': 'works the queue of sync runs, several at a time',
  'workers/upkeep/dead-letters.ts': 'the dead-letter queue is no lane: it shows failed jobs to the dashboard',
  'src/board/queues.ts': 'Bull Board takes queues of BullMQ',
  'src/store/control-functions.ts': 'copies the tables of its schema together with ours',
  'src/store/health.ts': 'counts the tables of its schema among those of the installation',
  'src/queue/spans.ts': 'names it in spans, as the conventions of OpenTelemetry ask',
};

test('BullMQ, its keys, tables and scripts appear only in the lane stores and listed files', () => {
  const modules = ['bullmq', 'src/queue/bullmq.ts', 'src/queue/bullmq-queues.ts'];
  const inner =
    /'bullmq'|\bbullmq\.(?:job|meta|event)\b|\bjob_seq\b|\block_token\b|QUEUE_SCHEMA|\.toKey\(|:lock\b|stalled-check|\bmoveToWait\b/;
  const knowing = code.filter(
    ({ imports, text }) => imports.some((name) => modules.includes(name)) || inner.test(text),
  );
  expect(knowing.map(({ file }) => file).sort()).toEqual([...laneStores, ...Object.keys(knowBullmq)].sort());
});

test('only connections open a lane store; all other files receive one', () => {
  const stores = laneStores.filter((file) => /lane-store-|lane-producer/.test(file));
  const opening = code.filter(
    ({ file, imports }) => !stores.includes(file) && imports.some((name) => stores.includes(name)),
  );
  expect(opening.map(({ file }) => file)).toEqual(['src/queue/connection.ts']);
});

/** Assignments of functions to members of objects that are not of ours, each with its reason. */
const replacedMembers: Record<string, string> = {
  'src/board/sign-in.ts: response.locals.again': 'Express gives `locals` to its users for values of theirs',
};

test('members of libraries are not replaced, except for the listed ones', () => {
  const methods = new Set<string>();
  for (const { prototype } of [pg.Client, pg.Pool, pg.Connection, Socket, Server])
    for (let type: object = prototype; type !== Object.prototype; type = Object.getPrototypeOf(type))
      for (const name of Object.getOwnPropertyNames(type)) methods.add(name);
  const assignment =
    /^\s*(?!this\b)(?<target>(?:\([^()]* as [^()]*\)|[\w$!.?]+)\.(?<member>[\w$]+)) = (?<value>async\b|function\b|\(|[\w$]+ =>|[\w$.]+\.bind\()?/gm;
  const replaced = code.flatMap(({ file, text }) =>
    [...text.matchAll(assignment)]
      .filter(({ groups }) => groups!.value !== undefined || methods.has(groups!.member!))
      .map(({ groups }) => `${file}: ${groups!.target}`),
  );
  expect(replaced.sort()).toEqual(Object.keys(replacedMembers).sort());
  const roundabout =
    /\bnew Proxy\(|\b[gs]etPrototypeOf\(|\bObject\.create\(|\bgetOwnPropertySymbols\(|\bpino\.symbols\b/;
  expect(code.filter(({ text }) => roundabout.test(text)).map(({ file }) => file)).toEqual([]);
});

/** Members that begin with `_` and are public: names of the API, and results of Prisma. */
const publicWithUnderscore = new Set(['_merge_objects', '_update_existing_only', '_sum']);

test('private members of libraries are not read', () => {
  const read = code.flatMap(({ file, text }) =>
    [...text.matchAll(/[\w)\]?!]\.(_[a-z]\w*)/gi)]
      .filter(([, member]) => !publicWithUnderscore.has(member!))
      .map(([, member]) => `${file}: ${member}`),
  );
  expect(read).toEqual([]);
});

test('DuckDB is loaded in one place, which reports when it is missing', () => {
  const loading = code.filter(({ values }) => values.includes('@duckdb/node-api'));
  expect(loading.map(({ file }) => file)).toEqual(['src/integrations/duckdb.ts']);
});

/**
 * Returns the given files and all files that they load, directly or indirectly. Dynamic imports are not
 * followed.
 */
function loadedWith(names: string[]): string[] {
  const loadsOf = new Map(code.map(({ file, loads }) => [file, loads]));
  const collected = new Set(names);
  for (const name of collected) for (const next of loadsOf.get(name) ?? []) collected.add(next);
  return [...collected];
}

test('large optional dependencies are loaded only by dynamic imports of files named open-…', () => {
  const names = ['postgres-source', 'files-source', 'bucket', 'files/parquet-lines'];
  const large = [...names.map((name) => `src/integrations/${name}.ts`), 'src/object-store/bucket-store.ts'];
  const openers = code.filter(({ file }) => path.posix.basename(file).startsWith('open-'));
  const opened = openers.flatMap(({ opens }) => opens.filter((name) => large.includes(name)));
  expect([...new Set(opened)].sort()).toEqual(large.sort());
  // Start from the processes, the dynamic imports of other files, and the openers themselves.
  const others = code.filter((one) => !openers.includes(one)).flatMap(({ opens }) => opens);
  const loaded = loadedWith([...entries, ...others, ...openers.map(({ file }) => file)]);
  expect(loaded.filter(isOurs).length).toBeGreaterThan(200);
  const isLarge = (name: string) =>
    large.includes(name) || name.startsWith('src/integrations/files/') || name === '@aws-sdk/client-s3';
  expect(loaded.filter(isLarge)).toEqual([]);
});

test('the modules profile, schemas and jobs do no input or output', () => {
  const outward = /^(?:node:)?(?:fs|net|http|https|dns|child_process|worker_threads|timers)\b/;
  const pure = code.filter(({ file }) => ['schemas', 'profile', 'jobs'].includes(roomOf(file)));
  const wrong = pure.filter(({ imports }) => imports.some((name) => outward.test(name)));
  expect(wrong.map(({ file }) => file)).toEqual([]);
});

test('process.env is read in one file, the only one that the linter excuses', () => {
  const { overrides } = JSON.parse(readFileSync(path.join(packageRoot, 'biome.json'), 'utf8'));
  const style = { noProcessEnv: 'error' };
  expect(overrides.filter((one: object) => JSON.stringify(one).includes('noProcessEnv'))).toEqual([
    { includes: ['src/**', 'workers/**'], linter: { rules: { style } } },
  ]);
  const excused = code.filter(({ text }) =>
    /noProcessEnv|biome-ignore(?:-\w+)? lint(?:\/style)?:/.test(text),
  );
  expect(excused.map(({ file }) => file)).toEqual(['src/platform/environment.ts']);
  const readers = code.filter(({ text }) => text.includes('wholeEnvironment'));
  expect(readers.map(({ file }) => file).sort()).toEqual([
    'src/platform/config.ts',
    'src/platform/environment.ts',
  ]);
});

test('every process that listens answers pipelined requests one after the other', () => {
  const listening = code.filter(({ text }) => /\blimitConnections\(\w+\)/.test(text));
  expect(listening.length).toBeGreaterThanOrEqual(3);
  const unordered = listening.filter(({ text }) => !/\.inOrder\(/.test(text));
  expect(unordered.map(({ file }) => file)).toEqual([]);
});
