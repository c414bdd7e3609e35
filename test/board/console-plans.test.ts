import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { createAccounts } from '../../src/board/accounts.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { newId } from '../../src/platform/ids.ts';
import { newProfileId, toServiceId } from '../../src/profile/identifier.ts';
import { pack } from '../../src/queue/pack.ts';
import { accounts } from '../../src/resources/accounts.ts';
import { integrations } from '../../src/resources/integrations.ts';
import { keys } from '../../src/resources/keys.ts';
import { workspaces } from '../../src/resources/workspaces.ts';
import { findNamed, findTeams } from '../../src/store/accounts.ts';
import { setPolicy } from '../../src/store/archive-files.ts';
import { listAttributeNames } from '../../src/store/attribute-names.ts';
import { auditAccountIn, inTime } from '../../src/store/audit.ts';
import type { Database } from '../../src/store/database.ts';
import { dropImport } from '../../src/store/imports.ts';
import { deleteIfIdle, isIntegration } from '../../src/store/integrations.ts';
import { PostgresClient } from '../../src/store/postgres-client.ts';
import { requireLinkKey } from '../../src/store/preference-centers.ts';
import { confirmLosses } from '../../src/store/queue-losses.ts';
import { emptiestShard } from '../../src/store/queue-shards.ts';
import { listSegments } from '../../src/store/segments.ts';
import { accountsByEmail, beginSession, leaveSession } from '../../src/store/sessions.ts';
import { countUnfinishedWork, listWaitingDeadLetters } from '../../src/store/snapshots.ts';
import { findDestination, readDestinationSecret } from '../../src/store/stream-destinations.ts';
import { listInvalidNumbers } from '../../src/store/suppression-lists.ts';
import { isSearchFilled } from '../../src/store/user-search.ts';
import { createAccount } from '../setup/access.ts';
import { createDatabaseOfOne, temporaryFolder } from '../setup/fixtures.ts';
import { small } from '../store/plans/allowed.ts';
import { type Filled, fill } from '../store/plans/fill.ts';
import { accesses, explainCustom, longRead, readCatalog } from '../store/plans/read.ts';
import { createVisitor, type Visitor } from './browser-session.ts';
import { page, post } from './console-scene.ts';
import { createInstallation, type Installation, log, tester } from './installation.ts';
import { createPeople } from './people.ts';

/** Reads of several rows of a large table by Prisma, with the reason why each is short. */
const longReads: Record<string, string> = {
  'a range of accounts_pkey: SELECT "public"."accounts"."id", "public"."accounts"."position" FROM "public"."accounts" W':
    'one row: the account of a link to the next page, or its neighbour if it was deleted',
  'a range of blocked_external_ids_pkey: SELECT "public"."blocked_external_ids"."workspace_id", "public"."blocked_external_ids"."ex':
    'a page of 51',
  'a range of custom_attribute_names_pkey: SELECT "public"."custom_attribute_names"."workspace_id", "public"."custom_attribute_names"':
    'a page of 51',
  'a range of invalid_phone_numbers_detected: SELECT "public"."invalid_phone_numbers"."workspace_id", "public"."invalid_phone_numbers"."':
    'a page of at most 500',
  'all of dead_letters_waiting: SELECT "public"."kept_dead_letters"."id", "public"."kept_dead_letters"."request_id", "publ':
    'only in penstock dev, which has the data of one test',
  'all of segment_exports_open: SELECT COUNT(*) AS "_count$_all" FROM (SELECT "public"."segment_exports"."workspace_id", "':
    'only in penstock dev, which has the data of one test',
  'all of sync_jobs_running: SELECT COUNT(*) AS "_count$_all" FROM (SELECT "public"."sync_jobs"."id" FROM "public"."syn':
    'only in penstock dev, which has the data of one test',
  'what one owner has in segment_exports: SELECT "public"."segment_exports"."workspace_id", "public"."segment_exports"."id", "public':
    'a page of 51',
  'what one owner has in blocked_external_ids: SELECT "public"."blocked_external_ids"."workspace_id", "public"."blocked_external_ids"."ex':
    'a page of 51',
  'what one owner has in blocked_external_ids: SELECT COUNT(*) AS "_count$_all" FROM (SELECT "public"."blocked_external_ids"."workspace_i':
    'at most 10,000 are blocked in a workspace, and an operator adds them one by one',
  'a range of usage_pkey: SELECT SUM("public"."usage"."attributes") AS "_sum$attributes", SUM("public"."usage"."even':
    'a row per day and lane, of 30 days',
};

/** Statements that Prisma has sent. */
const sent = new Map<string, unknown[]>();
/** Each `file:line` of src/board, src/resources and src/store that has called Prisma. */
const lines = new Set<string>();

const ASKING =
  /\b(?:prisma|tx)\s*\.\w+\.(?:find|create|update|delete|upsert|count|groupBy|aggregate)\w*\(|\.\$(?:query|execute)Raw/;

/**
 * Wraps a client so that the caller of each query is recorded. Prisma sends the statement later, without the caller's
 * stack.
 */
function noting<T extends object>(client: T): T {
  const note = () => {
    const stack = new Error().stack!.matchAll(/\/(src\/(?:board|resources|store)\/[\w/-]+\.ts):(\d+)/g);
    for (const [, file, line] of stack) lines.add(`${file}:${line}`);
  };
  const model = (given: object) =>
    new Proxy(given, {
      get: (target, name) => {
        const result = Reflect.get(target, name);
        if (typeof result !== 'function') return result;
        return (...values: unknown[]) => {
          note();
          return result.apply(target, values);
        };
      },
    });
  return new Proxy(client, {
    get(target, name) {
      const actual: unknown = Reflect.get(target, name);
      if (name === '$transaction')
        return (work: unknown, ...rest: unknown[]) =>
          (actual as (...given: unknown[]) => unknown).call(
            target,
            typeof work === 'function' ? (tx: object) => work(noting(tx)) : work,
            ...rest,
          );
      if (typeof actual === 'function' && /Raw/.test(String(name)))
        return (...values: unknown[]) => {
          note();
          return actual.apply(target, values);
        };
      return typeof actual === 'object' && actual !== null && !String(name).startsWith('_')
        ? model(actual)
        : actual;
    },
  });
}

/** Records statements of Prisma, which is the only client that requests rows as arrays. */
function noteStatements() {
  const query = PostgresClient.prototype.query as (...given: unknown[]) => unknown;
  return vi.spyOn(PostgresClient.prototype, 'query').mockImplementation(function (
    this: unknown,
    ...given: unknown[]
  ) {
    const [first, values] = given as [{ text?: string; rowMode?: string; values?: unknown[] }, unknown[]?];
    if (first?.rowMode === 'array' && /^\s*(select|with|insert|update|delete)\b/i.test(first.text ?? ''))
      sent.set(first.text!, values ?? first.values ?? []);
    return query.apply(this, given);
  } as never);
}

let installation: Installation;
let filled: Filled;
beforeAll(async () => {
  // Uses a single Postgres even if the tests run on Citus, because plans differ.
  installation = await createInstallation('postgres', await createDatabaseOfOne());
  const { database } = installation;
  filled = await fill(database.pool);
  database.prisma = noting(database.prisma);
  const spy = noteStatements();
  try {
    await visitEverything();
  } finally {
    spy.mockRestore();
  }
}, 240_000);
afterAll(() => installation.stop());

/**
 * Opens every page and runs every action as BOARD_USER and as users of a company, and calls the other users of Prisma.
 */
async function visitEverything(): Promise<void> {
  const { database } = installation;
  const { workspaceId, integrationId, oldRunId, users } = filled;
  const query = async (text: string, ...values: unknown[]) => (await database.pool.query(text, values)).rows;
  const board = await installation.startBoard();
  const people = createPeople(installation, board);
  const operator = createVisitor(board);
  await operator.signIn();
  const [{ id: owner }] = await query('select company_id as id from workspaces where id = $1', workspaceId);
  const set = newId();
  await query(
    "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, 'Looks', '{admin}')",
    ...[set, owner],
  );
  const appGroups = [{ workspace: workspaceId, permissions: [], permissionSet: set, teams: [] }];
  const admin = (await people.arrive(['admin'], { company: owner })).visitor;
  const member = (await people.arrive([], { company: owner, appGroups })).visitor;
  const center = newId();
  await query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     values ($1, $2, 'Choices', 'Choices', '<p>Hello</p>', '', 'active')`,
    ...[workspaceId, center],
  );
  const [{ id: key }] = await query('select id from api_keys where workspace_id = $1', workspaceId);
  const [{ id: team, name: teamName }] = await query(
    'select id, name from teams where workspace_id = $1',
    workspaceId,
  );
  const [user] = users;
  const sentBy = {
    request_id: newId(),
    workspace_id: workspaceId,
    accepted_at: new Date().toISOString(),
    key_id: key,
  };
  const event = { kind: 'events', id: newId(), index: 0, identifier: { external_id: 'ada' }, name: 'seen' };
  const objects = [{ ...event, time: sentBy.accepted_at } as AcceptedObject];
  await installation.producer.add(pack([{ request: sentBy, objects, bytes: 100 }], 1, 100));
  const account = await createAccount(database.pool as never, owner, 'grace@example.com');
  const [{ id: waiting, request_id: request }] = await query(
    "select id, request_id from dead_letters where workspace_id = $1 and state = 'waiting' limit 1",
    workspaceId,
  );
  const service = toServiceId(user!.id);
  const [cause] = await query('select * from refused_objects where workspace_id = $1 limit 1', workspaceId);
  const refused = `/refused-objects/cause?${new URLSearchParams({
    ...{ workspace: workspaceId, reason: cause.reason, operation: cause.operation },
    ...{ array: cause.input_array, field: cause.field, key: cause.api_key_id },
  })}`;
  const workspaceQuery = `workspace=${workspaceId}`;
  const paths = [
    ...['/', '/history', '/users', `/users?q=${user!.external_id}`, `/users/${service}?${workspaceQuery}`],
    ...[
      '/requests',
      `/requests/${sentBy.request_id}?${workspaceQuery}`,
      `/requests/${request}?${workspaceQuery}`,
      '/dead-letters',
      '/dead-letters?state=discarded',
    ],
    ...['/refused-objects', `/refused-objects?${workspaceQuery}&range=month`, refused],
    ...[
      `/dead-letters/${waiting}`,
      '/syncs',
      `/syncs/${integrationId}`,
      `/syncs/${integrationId}/runs/${oldRunId}`,
    ],
    ...[
      '/groups',
      `/groups?${workspaceQuery}&before=${newId()}`,
      '/preference-centers',
      `/preference-centers/${center}`,
    ],
    ...[
      `/preference-centers/${center}/preview?user=${user!.external_id}`,
      '/workspaces',
      '/workspaces?name=shop1',
    ],
    ...[
      `/workspaces?before=${newId()}`,
      `/workspaces/${workspaceId}`,
      ...[`/limits?${workspaceQuery}`, `/limits/scim?${workspaceQuery}`],
      '/keys',
      `/keys?${workspaceQuery}&before=${newId()}`,
    ],
    ...[
      `/keys/${key}`,
      '/accounts',
      `/accounts?company=${owner}&email=who`,
      `/accounts?before=${account}`,
      `/accounts?company=${newId()}`,
    ],
    ...[
      `/accounts/${account}`,
      '/teams',
      `/teams?${workspaceQuery}&before=${newId()}`,
      `/permission-sets?company=${owner}&before=${newId()}`,
      `/scim-tokens?company=${owner}`,
      ...['/companies', `/companies/${owner}`, '/streams', '/groups', '/imports'],
    ],
    ...[
      `/teams/${team}`,
      `/permission-sets/${set}`,
      '/audit',
      `/audit?company=${newId()}`,
      '/sessions?of=all',
    ],
    ...['/search?q=shop', '/search?q=grace@example.com', `/search?q=${waiting}`],
  ];
  for (const one of paths)
    for (const visitor of [operator, admin, member]) {
      const { status, text } = await page(visitor, one);
      if (status >= 500) throw new Error(`${one}: ${text}`);
    }
  const act = async (where: string, fields: Record<string, string>) => {
    const { status } = await post(admin, where, fields);
    if (status >= 400) throw new Error(`${where} ${JSON.stringify(fields)}: ${status}`);
  };
  await act('/keys', { workspace: workspaceId, name: 'till', permissions: 'users.track' });
  const [made] = await query("select id, identifier from api_keys where name = 'till'");
  await act(`/keys/${made.id}`, { confirm: made.identifier });
  const limit = { requests: '5', window_seconds: '5' };
  for (const action of ['set', 'reset'])
    await post(operator, `/limits/scim?${workspaceQuery}`, { action, ...limit });
  await post(operator, '/limits', { workspace: workspaceId, action: 'reset' });
  await act('/teams', { workspace: workspaceId, name: 'Berlin' });
  await act('/permission-sets', { company: owner, name: 'Sees', permissions: 'view_segments' });
  await act('/scim-tokens', { company: owner, origin: 'https://idp.example', name: 'Directory' });
  const [directory] = await query("select id, identifier from scim_tokens where name = 'Directory'");
  const { id: tokenId } = directory;
  await act(`/scim-tokens/${tokenId}`, { action: 'rotate', confirm: directory.identifier });
  const [rotated] = await query('select identifier from scim_tokens where id = $1', tokenId);
  await act(`/scim-tokens/${tokenId}`, { action: 'revoke', confirm: rotated.identifier });
  await act('/groups', { workspace: workspaceId, name: 'Hints', channel: 'email' });
  const [group] = await query("select id from subscription_groups where name = 'Hints'");
  const subscription = { action: 'set_subscription', subscription: group.id, state: 'unsubscribed' };
  const person = newProfileId(Date.now());
  await query(
    "insert into profiles (workspace_id, id, external_id, email, created_at, updated_at) values ($1, $2, 'changed', 'changed@x.com', now(), now())",
    ...[workspaceId, person],
  );
  await page(admin, `/users/${toServiceId(person)}?${workspaceQuery}`);
  const changed = await post(admin, `/users/${toServiceId(person)}?${workspaceQuery}`, {
    ...{ ...subscription, confirm: 'yes' },
  });
  await page(admin, changed.headers.get('location')!);
  await act(`/groups/${group.id}`, { workspace: workspaceId, confirm: 'Hints' });
  await act(`/users/${toServiceId(person)}/preference-link?${workspaceQuery}`, { center });
  const blocked = { workspace: workspaceId, external_id: 'undefined' };
  for (let times = 0; times < 2; times++) await act('/blocked-ids', blocked);
  await page(operator, `/blocked-ids?${workspaceQuery}`);
  const blockedId = `${workspaceId}.${Buffer.from('undefined').toString('base64url')}`;
  await page(operator, `/blocked-ids?${workspaceQuery}&before=${blockedId}`);
  await act(`/blocked-ids/${blockedId}?${workspaceQuery}`, { action: 'unblock' });
  await query(
    "insert into segments (id, workspace_id, name, purpose, definition) values ($1, $2, 'Everyone', '', '{\"all\":[]}')",
    ...[newId(), workspaceId],
  );
  await page(admin, `/exports?${workspaceQuery}`);
  await act('/exports', { workspace: workspaceId, segment: 'Everyone', fields: 'email' });
  // Commands look up a key by its identifier.
  const named = { text: undefined, options: { identifier: made.identifier }, owner: undefined };
  await keys.naming.find!(installation.resourceContext, named);
  const folder = temporaryFolder();
  writeFileSync(path.join(folder, 'rows.csv'), 'external_id,updated_at,payload\n');
  const source = { source: 'folder', path: folder, format: 'csv', tls: 'off', port: '5432' };
  const sync = { workspace: workspaceId, name: 'by hand', kind: 'attributes', ...source };
  await post(operator, '/syncs', sync);
  const byHand = await integrations.naming.find!(installation.resourceContext, {
    ...{ ...named, text: 'by hand', options: { workspace: workspaceId } },
  });
  for (const fields of [{ action: 'test' }, { action: 'update', schedule: 'daily' }])
    await post(operator, `/syncs/${byHand!.id}`, fields);
  for (const company of [undefined, owner])
    await accounts.naming.find!(installation.resourceContext, {
      ...{ ...named, text: 'ada@example.com', options: { company } },
    });
  await workspaces.naming.find!(installation.resourceContext, { ...named, text: 'shop1' });
  await post(operator, '/companies', { name: 'Another company' });
  await post(operator, '/workspaces', { name: 'atelier', company: 'Another company' });
  const [sees] = await query("select id from permission_sets where name = 'Sees'");
  await act(`/permission-sets/${sees.id}`, {
    action: 'change',
    name: 'Looks at',
    permissions: 'view_segments',
  });
  await act(`/teams/${team}`, { action: 'rename', name: teamName });
  const give = { workspace: workspaceId };
  await act(`/accounts/${account}`, { action: 'give-permission-set', ...give, set });
  await act(`/accounts/${account}`, {
    action: 'give-team',
    ...give,
    team: teamName,
    permissions: 'admin',
  });
  await page(admin, `/accounts/${account}`);
  await act(`/accounts/${account}`, { action: 'remove-team', team: teamName });
  await act(`/accounts/${account}`, { action: 'remove-permissions', workspace: workspaceId });
  await act('/accounts', { email: 'niklaus@example.com', given_name: 'Niklaus', family_name: 'Wirth' });
  const colleague = { email: 'grace@example.com', given_name: 'Grace', family_name: 'Hopper' };
  await post(operator, '/accounts', { ...colleague, company: owner, role: 'viewer' });
  await act(`/accounts/${account}`, { action: 'invite' });
  await act(`/accounts/${account}`, { action: 'revoke-invitation' });
  const invited = await createAccount(database.pool as never, owner, 'ada@example.com');
  const token = await people.invite(invited);
  await createVisitor(board).get(`/invitation?token=${token}`);
  await people.accept(token);
  await createAccounts(database, log).signInProved(
    { email: 'ada@example.com', company: owner },
    { client: { address: undefined, agent: 'Firefox' }, previous: undefined },
  );
  await actOnSegments(admin, workspaceId);
  await callOthers(database, filled);
  for (const newest of [true, false])
    await listSegments(database, workspaceId, { newest, limit: 100, offset: 0 });
  await findNamed(database.prisma, 'workspaces', { companyId: owner, names: ['shop2'], ids: [newId()] });
  await findTeams(database.prisma, [{ workspaceId, name: teamName, id: team }]);
  const auditing = auditAccountIn(database.prisma, tester, {
    ...{ account: { id: account, companyId: owner, version: 1 }, action: 'accounts.change' },
  });
  await inTime(database.prisma, auditing, database.prisma.account.findMany({ where: { id: account } }));
  // With more workspaces than a page loads, one of the others is looked up.
  await query(
    "insert into workspaces (id, name, company_id) select gen_random_uuid(), 'another ' || n, $1 from generate_series(1, 1000) as n",
    owner,
  );
  for (const which of [workspaceId, 'shop1']) await page(admin, `/keys?workspace=${which}`);
}

/** Creates, updates and archives a segment in the console. */
async function actOnSegments(visitor: Visitor, workspaceId: string): Promise<void> {
  const fields = { workspace: workspaceId, name: 'Readers', purpose: '', definition: '{"all":[]}' };
  const { headers } = await post(visitor, '/segments', { ...fields, action: 'create' });
  const created = headers.get('location')!;
  await page(visitor, created);
  await page(visitor, `/segments?workspace=${workspaceId}`);
  const [path] = created.split('?');
  await post(visitor, path!, { ...fields, action: 'update', name: 'All readers' });
  await post(visitor, path!, { ...fields, action: 'archive', confirm: 'archive' });
}

/** Calls functions that the console does not call, or whose result its pages do not need. */
async function callOthers(database: Database, { workspaceId, integrationId }: Filled): Promise<void> {
  const { prisma } = database;
  const id = newId();
  await requireLinkKey(database, workspaceId);
  await listAttributeNames(database, workspaceId, { after: 'plan', limit: 51 });
  await emptiestShard(database, 2);
  await listInvalidNumbers(database, workspaceId, {
    from: new Date(0),
    to: new Date(),
    limit: 100,
    offset: 0,
  });
  await listInvalidNumbers(database, workspaceId, { phones: ['+44202'], limit: 100, offset: 0 });
  await isIntegration(database, integrationId, workspaceId);
  await accountsByEmail(database, ['who1@x.com']);
  await findDestination(database, [workspaceId], id);
  await readDestinationSecret(database, { workspaceId, id });
  await isSearchFilled(database);
  await countUnfinishedWork(database);
  await listWaitingDeadLetters(database, 100);
  await setPolicy(prisma, workspaceId, 12);
  await setPolicy(prisma, workspaceId, undefined);
  const dropped = { workspaceId, id, key: Buffer.alloc(32), workspace: 'shop1', file: 'users.csv' };
  const progress = { rows: 0, accepted: 0, refused: 0, startedAt: new Date(), finishedAt: null };
  await dropImport(database, { ...dropped, ...progress }, tester);
  const { rows } = await database.pool.query(
    'select id as "accountId", company_id as "companyId", session_epoch as epoch from accounts where active limit 1',
  );
  const account: Pick<Parameters<typeof beginSession>[1], 'accountId' | 'companyId' | 'epoch'> = rows[0];
  // More sessions than an account may have, so that the oldest are deleted.
  await database.pool.query(
    `insert into sessions (id, secret_hash, company_id, account_id, epoch, ends_at)
     select ('00000001-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, sha256(('more' || n)::bytea), $1, $2, $3, now()
     from generate_series(1, 120) as n`,
    [account.companyId, account.accountId, account.epoch],
  );
  await prisma.$transaction(async (tx) => {
    await confirmLosses(tx, 1);
    await deleteIfIdle(tx, id);
    const secretHash = Buffer.alloc(32);
    const client = { address: undefined, agent: 'Firefox' };
    await beginSession(tx, { ...account, secretHash, endsAt: new Date(), ...client });
    await leaveSession(tx, secretHash);
  });
}

function linesThatAsk(): string[] {
  return ['src/board', 'src/resources', 'src/store'].flatMap((folder) =>
    readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .flatMap((name) => {
        const file = path.posix.join(folder, name);
        const text = readFileSync(path.join(packageRoot, file), 'utf8').split('\n');
        return text.flatMap((line, index) => (ASKING.test(line) ? [`${file}:${index + 1}`] : []));
      }),
  );
}

describe('Prisma queries of the console, on a filled database,', () => {
  test('are all covered by this test', () => {
    expect(linesThatAsk().filter((line) => !lines.has(line))).toEqual([]);
    expect(sent.size).toBeGreaterThan(40);
  });

  test('read few rows of a large table, except those listed with a reason', async () => {
    const { pool } = installation.database;
    const catalog = await readCatalog(pool);
    const tx = await pool.connect();
    const long = new Set<string>();
    try {
      for (const [text, values] of sent)
        for (const access of accesses(await explainCustom(tx, { site: '', text, values }), catalog)) {
          const read = access.table in small ? undefined : longRead(access);
          if (read !== undefined) long.add(`${read}: ${text.slice(0, 90)}`);
        }
    } finally {
      tx.release();
    }
    expect([...long].sort()).toEqual(Object.keys(longReads).sort());
  });
});
