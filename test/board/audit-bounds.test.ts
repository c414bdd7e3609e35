import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MAX_FILE_ENTRIES } from '../../src/board/pages/audit.ts';
import { type AuditEntry, recordAudit } from '../../src/store/audit.ts';
import { searchAudit } from '../../src/store/audit-list.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, openConsole, page } from './console-scene.ts';
import { DEFAULT_COMPANY, PASSWORD } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

const pool = () => scene.installation.database.pool;
const auditRows = async (subject: string) => (await searchAudit(pool(), { subject, limit: 50 })).rows;
const actor = { kind: 'account', name: 'tester@example.com', via: 'console' } as const;
const about = (id: string): AuditEntry => ({
  ...{ action: 'users.export', subject: { kind: 'user', id }, workspaceId: scene.shop },
});

describe('the operator in the audit', () => {
  const operator = {
    kind: 'operator',
    name: `boss-${uuidv7()}`,
    via: 'console',
    address: '192.0.2.77',
  } as const;

  test('companies see “the operator” without an address, on the page and in the CSV file', async () => {
    const subject = uuidv7();
    await recordAudit(pool(), operator, [about(subject)]);
    const { visitor } = await scene.people.arrive(['admin']);
    for (const path of [`/audit?subject=${subject}`, `/audit.csv?subject=${subject}`]) {
      const { text } = await page(visitor, path);
      expect([path, text.includes('the operator')]).toEqual([path, true]);
      expect([path, /boss-|192\.0\.2\.77/.test(text)]).toEqual([path, false]);
      expect((await page(scene.operator, path)).text).toContain('192.0.2.77');
    }
  });

  test('a company finds no operator entries by guessing the operator name', async () => {
    const subject = uuidv7();
    await recordAudit(pool(), operator, [about(subject)]);
    const { visitor } = await scene.people.arrive(['admin']);
    for (const path of [`/audit?actor=${operator.name}`, `/audit.csv?actor=${operator.name}`]) {
      expect((await page(visitor, path)).text).not.toContain(subject);
      expect((await page(scene.operator, path)).text).toContain(subject);
    }
  });
});

test('a CSV file reads a limited number of entries and tells where to continue', async () => {
  const [name, rare] = [`${uuidv7()}@example.com`, uuidv7()];
  const { rows } = await pool().query(
    `insert into audit (id, company_id, actor_kind, actor_name, via, action, subject_kind, subject_id)
     select uuid_v7_floor(now() + n * interval '1 second'), $1, 'account', 'somebody', 'console', 'users.export', 'user', 'much'
     from generate_series(1, $2::integer) as n
     returning id`,
    [DEFAULT_COMPANY, MAX_FILE_ENTRIES + 10],
  );
  try {
    await recordAudit(pool(), { ...actor, name }, [about(rare)]);
    const { text } = await page(scene.operator, `/audit.csv?actor=${name}`);
    expect(text).not.toContain(rare);
    const [, ended, next] =
      /contains the actions after (\S+)\. It continues at (\/audit\.csv\S+)"?\r\n$/.exec(text) ?? [];
    const first = rows.map(({ id }: { id: string }) => id).sort()[10]!;
    expect(new Date(ended!).getTime()).toBe(Number.parseInt(first.slice(0, 8) + first.slice(9, 13), 16));
    const rest = await page(scene.operator, next!.replace(/"$/, ''));
    expect([rest.text.includes(rare), rest.text.includes('The file ends here')]).toEqual([true, false]);
  } finally {
    await scene.query("delete from audit where subject_id = 'much'");
  }
});

test('one user gets at most 120 actions per minute, which also limits the audit', async () => {
  const ada = await scene.people.arrive(['admin']);
  const grace = await scene.people.arrive(['admin']);
  const statuses: number[] = [];
  for (let n = 0; n < 125; n++) statuses.push((await ada.visitor.get('/audit.csv?subject=none')).status);
  // A busy machine may answer some requests with 503. They count as well.
  expect(statuses.filter((status) => status !== 429)).toHaveLength(120);
  expect(statuses).toContain(200);
  const refused = await ada.visitor.get('/audit.csv?subject=none');
  expect([refused.status, Number(refused.headers.get('retry-after')) > 0]).toEqual([429, true]);
  // Page views are not limited, nor are other users.
  expect((await page(ada.visitor, '/audit')).status).toBe(200);
  expect((await grace.visitor.get('/audit.csv?subject=none')).status).toBe(200);
});

test('a user who signs in repeatedly has to wait even with the right password; others do not', async () => {
  const { id, email } = await scene.people.arrive();
  const statuses: number[] = [];
  for (let n = 0; n < 32; n++)
    statuses.push((await createVisitor(scene.board).signIn(email, PASSWORD)).status);
  expect(statuses.filter((status) => status === 303)).toHaveLength(29);
  expect(statuses.slice(-3)).toEqual([429, 429, 429]);
  expect((await auditRows(id)).filter(({ action }) => action === 'sessions.begin')).toHaveLength(30);
  await scene.people.arrive();
});
