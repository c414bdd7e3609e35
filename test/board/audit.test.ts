import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createFailedSignIns } from '../../src/board/lockouts.ts';
import { type AuditEntry, recordAudit } from '../../src/store/audit.ts';
import { forgetAudit, MAX_SCANNED, searchAudit } from '../../src/store/audit-list.ts';
import { createAccount, createCompany } from '../setup/access.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import { log } from './installation.ts';
import { DEFAULT_COMPANY, PASSWORD } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

const pool = () => scene.installation.database.pool;

/** Returns the audit entries of a subject, oldest first. */
const auditRows = async (subject: string) =>
  (await searchAudit(pool(), { subject, limit: 50 })).rows.reverse();

const actor = { kind: 'account', name: 'tester@example.com', via: 'console' } as const;

const about = (id: string, change: Partial<AuditEntry> = {}): AuditEntry => ({
  ...{ action: 'users.export', subject: { kind: 'user', id }, workspaceId: scene.shop, ...change },
});

describe('the audit names actor and address of', () => {
  test('dead letters that are replayed and discarded', async () => {
    const ada = await scene.people.arrive(['admin']);
    const [first, second] = [await scene.letterIn(scene.shop), await scene.letterIn(scene.shop)];
    await post(ada.visitor, `/dead-letters/${first}`, { action: 'replay' });
    await post(ada.visitor, `/dead-letters/${first}`, { action: 'replay' });
    await post(ada.visitor, `/dead-letters/${second}`, { action: 'discard', why: 'hopeless' });
    const [entry, ...others] = await auditRows(first);
    // The second press changed nothing, so it has no entry.
    expect(others).toEqual([]);
    expect(entry).toMatchObject({
      ...{ actorKind: 'account', actorId: ada.id, actorName: ada.email, via: 'console' },
      ...{ address: '127.0.0.1', action: 'dead_letters.replay', subjectKind: 'dead_letter' },
      ...{ workspaceId: scene.shop, workspace: 'shop', companyId: DEFAULT_COMPANY },
    });
    expect((await auditRows(second)).map(({ action }) => action)).toEqual(['dead_letters.discard']);
    expect(JSON.stringify(await auditRows(second))).not.toContain('hopeless');
  });

  test('syncs that are paused, resumed, started and cancelled, and the download of failed rows', async () => {
    const { operator, integration, run } = scene;
    for (const action of ['pause', 'resume', 'sync', 'cancel'])
      await post(operator, `/syncs/${integration}`, { action });
    await operator.get(`/syncs/${integration}/runs/${run}/rows.csv`);
    const entries = await auditRows(integration);
    expect(entries.map(({ action }) => action)).toEqual([
      ...['integrations.pause', 'integrations.resume', 'syncs.start', 'syncs.cancel', 'syncs.download_rows'],
    ]);
    expect(entries[0]).toMatchObject({ actorKind: 'operator', actorName: 'admin', workspaceId: scene.shop });
  });

  test('users that are exported and deleted, by their ids only', async () => {
    const { operator, user } = scene;
    await operator.get(`/users/${user}/export`);
    await post(operator, `/users/${user}/delete`, { confirm: 'not it' });
    await post(operator, `/users/${user}/delete`, { confirm: user });
    const entries = await auditRows(user);
    expect(entries.map(({ action }) => action)).toEqual(['users.export', 'users.delete']);
    expect(entries[1]!.detail).toEqual({ request_id: expect.stringMatching(/^[0-9a-f-]{36}$/) });
    expect(JSON.stringify(entries)).not.toMatch(/ada@gmail|Lovelace|user-1/);
  });

  test('an accepted invitation, and sessions that start and end', async () => {
    const { id, email } = await scene.people.arrive();
    const token = await scene.people.invite(id);
    await scene.people.accept(token);
    const visitor = createVisitor(scene.board);
    await visitor.signIn(email, PASSWORD);
    await visitor.signOut();
    const entries = await auditRows(id);
    expect(entries.map(({ action, via }) => [action, via])).toEqual([
      ...['sessions.begin', 'invitations.accept', 'sessions.begin', 'sessions.end'].map((one) => [
        one,
        'dashboard',
      ]),
    ]);
    expect(entries.map(({ companyId }) => companyId)).toEqual(Array(4).fill(DEFAULT_COMPANY));
    expect(JSON.stringify(entries)).not.toContain(token);
  });
});

describe('failed sign-ins', () => {
  test('2,000 failed sign-ins add one entry per account and one for all unknown names', async () => {
    const { id, email } = await scene.people.arrive();
    const failures = createFailedSignIns(scene.installation.database, log);
    const client = { address: '192.0.2.1', agent: 'a program' };
    for (let n = 0; n < 1000; n++) failures.note(email, client);
    for (let n = 0; n < 1000; n++) failures.note(`secret-${n}@nowhere.example`, client);
    failures.note(undefined, client);
    // A name that Postgres cannot store must not prevent the other entries.
    failures.note('\u0000 \ud800', client);
    await failures.stop();
    const { rows } = await searchAudit(pool(), { action: 'sign_ins.fail', limit: 50 });
    expect(
      rows
        .map(({ subjectKind, subjectId, address, detail }) => [subjectKind, subjectId, address, detail])
        .sort(),
    ).toEqual(
      [
        ['account', id, '192.0.2.1', { count: 1000 }],
        ['account', 'unknown', '192.0.2.1', { count: 1001 }],
        ['operator', 'BOARD_USER', '192.0.2.1', { count: 1 }],
      ].sort(),
    );
    // The user name field may have contained a password.
    expect(JSON.stringify(rows)).not.toContain('nowhere');
  });
});

test('failed sign-ins that could not be written are added to the next entry', async () => {
  const { id, email } = await scene.people.arrive();
  const failures = createFailedSignIns(scene.installation.database, log);
  const client = { address: '192.0.2.1', agent: 'a program' };
  failures.note(email, client);
  await scene.query('alter table audit add constraint full_disk check (false) not valid');
  await failures.stop().finally(() => scene.query('alter table audit drop constraint full_disk'));
  failures.note(email, client);
  await failures.stop();
  const entries = (await auditRows(id)).filter(({ action }) => action === 'sign_ins.fail');
  expect(entries.map(({ detail }) => detail)).toEqual([{ count: 2 }]);
});

test('a failed sign-in by a provider is only recorded for the company of the provider', async () => {
  const company = await createCompany(pool() as never, `company-${uuidv7()}`);
  const email = `${uuidv7()}@example.com`;
  const [ours, theirs] = [
    await createAccount(pool() as never, DEFAULT_COMPANY, email),
    await createAccount(pool() as never, company, email),
  ];
  const failures = createFailedSignIns(scene.installation.database, log);
  const client = { address: '192.0.2.1', agent: 'a program' };
  failures.note(email, client, company);
  failures.note(email, client, '');
  await failures.stop();
  const failed = async (id: string) => (await auditRows(id)).map(({ action, detail }) => [action, detail]);
  expect([await failed(ours), await failed(theirs)]).toEqual([[], [['sign_ins.fail', { count: 1 }]]]);
});

describe('the audit page', () => {
  const write = (...entries: AuditEntry[]) => recordAudit(pool(), actor, entries);

  test('the page shows an administrator only entries of the own company', async () => {
    const [own, other] = [uuidv7(), uuidv7()];
    const company = await createCompany(pool() as never, `company-${other}`);
    await write(about(own), about(other, { workspaceId: undefined, companyId: company }));
    await write(about('the installation', { workspaceId: undefined }));
    const { visitor } = await scene.people.arrive(['manage_company_settings']);
    const subjects = [
      '',
      `?subject=${own}`,
      `?subject=${other}`,
      `?company=${company}`,
      '?action=users.export',
    ];
    for (const query of subjects)
      for (const path of [`/audit${query}`, `/audit.csv${query}`]) {
        const { text } = await page(visitor, path);
        const body = text.replace(/<input[^>]*>|href="[^"]*"/g, '');
        expect([path, body.includes(other), body.includes('the installation')]).toEqual([path, false, false]);
      }
    expect((await page(visitor, '/audit')).text).toContain(own);
    const { text } = await page(scene.operator, `/audit?company=${company}`);
    expect([text.includes(other), text.includes(own)]).toEqual([true, false]);
  });

  test('the page filters by actor, action, subject and day, and has further pages', async () => {
    const id = uuidv7();
    const name = `${id}@example.com`;
    const entries = Array.from({ length: 60 }, () => about(id));
    await recordAudit(pool(), { ...actor, name }, entries);
    const idsOn = async (path: string) => {
      const { text } = await page(scene.operator, path);
      const next = /rel="next" href="([^"]+)"/.exec(text)?.[1]?.replaceAll('&amp;', '&');
      return { count: text.split(`data-copy="${id}"`).length - 1, next };
    };
    const today = new Date().toISOString().slice(0, 10);
    for (const query of [
      `actor=${name}`,
      `subject=${id}`,
      `actor=${name}&action=users.export&from=${today}&to=${today}`,
    ]) {
      const first = await idsOn(`/audit?${query}`);
      expect([query, first.count]).toEqual([query, 50]);
      expect(await idsOn(first.next!)).toEqual({ count: 10, next: undefined });
    }
    expect((await idsOn(`/audit?actor=${name}&action=users.delete`)).count).toBe(0);
    expect((await idsOn(`/audit?actor=${name}&to=2026-01-01`)).count).toBe(0);
    for (const query of ['from=yesterday', 'action=nothing', `actor=${'x'.repeat(400)}`, 'company=mine'])
      expect([query, (await page(scene.operator, `/audit?${query}`)).status]).toEqual([query, 400]);
  });

  test('the page shows details as names and values, and for how long entries are kept', async () => {
    const id = uuidv7();
    await write(about(id, { detail: { name: 'crm', changed: ['name', 'url'] } }));
    const { text } = await page(scene.operator, `/audit?subject=${id}`);
    expect(text).toContain('<dt>changed</dt><dd>name, url</dd>');
    expect(text).toContain('Entries are kept for 365 days.');
  });

  test('a search reads a limited number of entries and can be continued', async () => {
    const [rare, name] = [uuidv7(), `${uuidv7()}@example.com`];
    await recordAudit(pool(), { ...actor, name }, [about(rare, { action: 'users.delete' })]);
    await recordAudit(
      pool(),
      actor,
      Array.from({ length: MAX_SCANNED + 5 }, () => about('much')),
    );
    const first = await searchAudit(pool(), { actor: name, limit: 50 });
    expect(first).toEqual({ rows: [], next: expect.any(String), looked: MAX_SCANNED });
    const second = await searchAudit(pool(), { actor: name, before: first.next, limit: 50 });
    expect(second.rows.map(({ subjectId }) => subjectId)).toEqual([rare]);
    expect((await page(scene.operator, `/audit?actor=${name}`)).text).toContain('No matching entries yet');
  });

  test('the page escapes markup, and the CSV file escapes formulas', async () => {
    const name = '=HYPERLINK("http://x")<script>alert(1)</script>';
    await recordAudit(pool(), { ...actor, name }, [about('<b>bold</b>')]);
    const { text } = await page(scene.operator, `/audit?actor=${encodeURIComponent(name)}`);
    expect(text).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(text).not.toMatch(/<script>|<b>bold/);
    const file = await page(scene.operator, `/audit.csv?actor=${encodeURIComponent(name)}`);
    expect(file.text).toContain(`"'=HYPERLINK(""http://x"")<script>alert(1)</script>"`);
    expect((await auditRows('all')).map(({ action }) => action)).toContain('audit.download');
  });
});

test('a change and its audit entry are committed together or not at all', async () => {
  const deadLetter = await scene.letterIn(scene.shop);
  await scene.query('alter table audit add constraint full_disk check (false) not valid');
  try {
    await post(scene.operator, `/dead-letters/${deadLetter}`, { action: 'discard', why: 'hopeless' });
  } finally {
    await scene.query('alter table audit drop constraint full_disk');
  }
  expect(await scene.query('select state from dead_letters where id = $1', deadLetter)).toEqual([
    { state: 'waiting' },
  ]);
});

test('entries are deleted after the configured number of days, and not before', async () => {
  const old = new Date(Date.now() - 10 * 86_400_000).getTime().toString(16).padStart(12, '0');
  const id = `${old.slice(0, 8)}-${old.slice(8)}-7000-8000-000000000000`;
  await scene.query(
    `insert into audit (id, company_id, actor_kind, actor_name, via, action, subject_kind, subject_id)
     values ($1, $2, 'account', 'x', 'console', 'users.export', 'user', 'old')`,
    ...[id, DEFAULT_COMPANY],
  );
  const before = await scene.query('select count(*) from audit');
  await forgetAudit(pool(), 11);
  expect(await scene.query('select count(*) from audit')).toEqual(before);
  // A row locked by another worker is skipped instead of waited for.
  const tx = await pool().connect();
  try {
    await tx.query('begin');
    await tx.query('select from audit where id = $1 for update', [id]);
    await forgetAudit(pool(), 9);
    await tx.query('rollback');
  } finally {
    tx.release();
  }
  expect(await auditRows('old')).toHaveLength(1);
  await forgetAudit(pool(), 9);
  expect(await auditRows('old')).toEqual([]);
});
