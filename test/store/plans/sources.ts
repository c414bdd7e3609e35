import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../../src/platform/files.ts';

/** Functions that run only on a distributed Postgres: see test/store/distributed-statements.test.ts. */
const distributedAlone = [
  ...[
    'counters.ts readUsageDistributed',
    'credentials.ts findBlocked',
    'erasures.ts eraseHistoriesByWorkspace',
  ],
  ...['idempotency-keys.ts forgetKeysByOwner', 'leases.ts takeByWorkspace'],
  'stream-destinations.ts listByWorkspace',
  ...['events.ts recordEventsApart', 'purchases.ts recordPurchasesApart'],
];

/** Functions that run only on a Citus, on tables outside of workspaces: see test/store/citus.test.ts. */
const onNodes: Record<string, string> = {
  'distributed.ts queryDistribution': 'looks whether there is a Citus',
  'distributed.ts prepare': 'sets the session',
  'distributed.ts readSequenceValues': 'reads where sequences stand',
  'distributed.ts declareWorkspace': 'writes one row, of the workspace that it is given',
  'horizon.ts readDistributed': 'reads where a sequence stands',
  'horizon.ts queryNodes': 'asks nodes for their transactions',
  'distribute.ts requireCitus': 'asks what there is to distribute over',
  'distribute.ts requireRoom': 'asks nodes for a setting',
  'distribute.ts setNodes': 'sets the databases of nodes',
  'distribute.ts namesIn': 'reads the catalog',
  'distribute.ts distribute': 'distributes tables, once a release',
  'distribute.ts prepare': 'distributes tables, once a release',
  'distribute.ts copy': 'distributes tables, once a release',
  'distribute.ts spread': 'distributes tables, once a release',
  'distribute.ts dropFailureTriggers': 'makes triggers, once a release',
  'distribute.ts makeFailureTriggers': 'makes triggers, once a release',
};

/** Functions whose statements only `penstock dev` sends, to a database with the data of one test. */
const inTestsOnly = [
  ...['prepareControl', 'takeSnapshot', 'dropSnapshot', 'restoreSnapshot', 'setStoreClock'],
].map((name) => `snapshots.ts ${name}`);

/**
 * Functions whose statements the running service does not send, or that read no table of the store, with the
 * reason.
 */
const apart: Record<string, string> = {
  'migrations.ts applyMigrations': 'makes the tables, once a release, before anything runs',
  'migrations.ts applyOnce': 'makes the tables, once a release, before anything runs',
  'migrations.ts WholeScripts': 'makes the tables, once a release, before anything runs',
  'transactions.ts inTransaction': 'begins and ends transactions',
  'connections.ts keepBeating': 'asks for nothing',
  'activity-series.ts recountSeries': 'is told to by hand, and reads everything on purpose',
  'partitions.ts detachPartition': 'takes a partition out of its table, behind which nobody waits for long',
  'partitions.ts countDetached':
    'reads all of a partition on purpose, which nobody else reads or writes any more',
  'partitions.ts dropDetached': 'drops a partition that was detached',
  'leases.ts withAdvisoryLock': 'takes an advisory lock',
  ...Object.fromEntries(distributedAlone.map((site) => [site, 'is sent to a distributed Postgres alone'])),
  ...onNodes,
  ...Object.fromEntries(inTestsOnly.map((site) => [site, 'is sent by penstock dev alone'])),
  'stale-database.ts SnapshotClient': 'passes on the statements of its callers, and sets the snapshot',
  'stale-database.ts openStaleDatabase': 'exports a snapshot, for penstock dev alone',
  'database.ts analyzeGrown': 'reads the catalog, and counts tables',
  'postgres-client.ts PostgresClient': 'passes on the statements of its callers, and sets the session',
  'pooling.ts sharesServers': 'looks for a connection pooler, and reads no table',
  'pooling.ts backendOf': 'looks for a connection pooler, and reads no table',
  'pooling.ts keepsNames': 'looks for a connection pooler, and reads the catalog',
};

/** A declaration at the top of a file. */
interface Declaration {
  name: string;
  isExported: boolean;
  /** Number of the first line, from 1. */
  line: number;
  text: string;
}

interface Source {
  file: string;
  text: string;
  declarations: Declaration[];
  imports: Import[];
}

interface Import {
  names: string[];
  from: string;
}

const DECLARED = /^(export )?(?:declare )?(?:async )?(?:function\*?|class|const|let|interface|type) (\w+)/;

function sourcesIn(folder: string): Source[] {
  return readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.startsWith('generated'))
    .map((name) => {
      const text = readFileSync(path.join(packageRoot, folder, name), 'utf8');
      return {
        ...{ file: path.posix.join(folder, name), text },
        ...{ declarations: declarationsIn(text), imports: importsIn(text) },
      };
    });
}

function declarationsIn(text: string): Declaration[] {
  const results: Declaration[] = [];
  text.split('\n').forEach((line, index) => {
    const [, exported, name] = DECLARED.exec(line) ?? [];
    if (name) results.push({ name, isExported: exported !== undefined, line: index + 1, text: '' });
    const last = results.at(-1);
    if (last) last.text += `${line}\n`;
  });
  return results;
}

function importsIn(text: string): Import[] {
  const imports = text.matchAll(/^import (?:type )?\{([^}]*)\} from '([^']+)';/gm);
  const dynamic = text.matchAll(/const \{([^}]*)\} = await import\('([^']+)'\)/g);
  return [...imports, ...dynamic].map(([, names, from]) => ({
    names: names!.split(',').map((name) => name.replace(/^\s*type /, '').trim()),
    from: from!,
  }));
}

const sources = [...sourcesIn('src'), ...sourcesIn('workers')];
const inStore = (file: string) => sources.find((source) => source.file === `src/store/${file}`)!;

/** Returns the function of the store, as `file name`, that contains a line. */
export function siteOf(file: string, line: number): string {
  const { name } = inStore(file).declarations.findLast((one) => one.line <= line)!;
  return `${file} ${name}`;
}

/** Functions of the store that send statements of `pg`, as `file name`, except functions in `apart`. */
export const sitesOfStore = (): string[] => [
  ...new Set(
    linesOfStore().map((line) => {
      const [file, number] = line.split(':') as [string, string];
      return siteOf(file, Number(number));
    }),
  ),
];

/** Lines of the store that send statements, as `file:line`. */
export const linesOfStore = () => linesOf((site) => !(site in apart));

/** Lines of the store that send statements only to a distributed Postgres. */
export const linesApart = () => linesOf((site) => distributedAlone.includes(site));

function linesOf(isWanted: (site: string) => boolean): string[] {
  return sources
    .filter(({ file }) => file.startsWith('src/store/'))
    .map(({ file, text }) => ({ file: file.slice('src/store/'.length), lines: text.split('\n') }))
    .flatMap(({ file, lines }) =>
      lines.flatMap((line, index) =>
        /\.query[(<]/.test(line) && isWanted(siteOf(file, index + 1)) ? [`${file}:${index + 1}`] : [],
      ),
    )
    .sort();
}

export type Session = 'workers' | 'edge' | 'retention';

/** Returns the sessions that send the statements of a function: workers, web and admin, or retention. */
export function sessionsOf(site: string): Session[] {
  const sessions = collected.get(site) ?? findSessions(site);
  collected.set(site, sessions);
  return sessions;
}

const collected = new Map<string, Session[]>();

function findSessions(site: string): Session[] {
  return [...new Set([...usersOf(site)].map(sessionOf))].sort();
}

/** Returns the files outside of the store that use a function of the store, directly or through the store. */
export function usersOf(site: string): Set<string> {
  const [file, name] = site.split(' ') as [string, string];
  const users = new Set<string>();
  follow({ file, name, users, seen: new Set() });
  if (users.size === 0) throw new Error(`nothing outside the store uses ${site}`);
  return users;
}

interface Followed {
  file: string;
  name: string;
  users: Set<string>;
  seen: Set<string>;
}

/** Follows a declaration of the store to its users: in its own file, in the store, and outside of it. */
function follow({ file, name, users, seen }: Followed): void {
  if (seen.has(`${file} ${name}`)) return;
  seen.add(`${file} ${name}`);
  const mentions = new RegExp(`\\b${name}\\b`);
  for (const { name: user, text } of inStore(file).declarations)
    if (user !== name && mentions.test(text)) follow({ file, name: user, users, seen });
  for (const source of sources.filter((one) => takes(one, file, name))) {
    if (!source.file.startsWith('src/store/')) {
      users.add(source.file);
      continue;
    }
    const user = source.file.slice('src/store/'.length);
    for (const one of source.declarations)
      if (mentions.test(one.text)) follow({ file: user, name: one.name, users, seen });
  }
}

function sessionOf(file: string): Session {
  if (file.startsWith('src/retention/')) return 'retention';
  return file.startsWith('workers/') ? 'workers' : 'edge';
}

const takes = ({ imports }: Source, file: string, name: string): boolean =>
  imports.some(
    ({ names, from }) => (from.endsWith(`/store/${file}`) || from === `./${file}`) && names.includes(name),
  );
