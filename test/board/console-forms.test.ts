import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { toProfileId } from '../../src/profile/identifier.ts';
import { searchAudit } from '../../src/store/audit-list.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, html, openConsole, page, post } from './console-scene.ts';
import { DEFAULT_COMPANY, PASSWORD, type Visitor } from './people.ts';

let scene: Console;
let admin: Visitor;
beforeAll(async () => {
  scene = await openConsole();
  admin = (await scene.people.arrive(['admin'])).visitor;
});
afterAll(() => scene?.installation.stop());

/** Submits a form, and returns the error next to each field, and the value that each field has in the answer. */
async function submit(visitor: Visitor, path: string, fields: Record<string, string>) {
  const answer = await post(visitor, path, fields);
  const text = await answer.text();
  const controls = [
    ...text.matchAll(/<(?:input|select|textarea) name="([a-z_]+)"([^>]*aria-invalid="true"[^>]*)>/g),
  ];
  return {
    status: answer.status,
    invalid: controls.map(([, name]) => name),
    problem: /<strong class="(?:hint )?problem"[^>]*>([^<]+)/.exec(text)?.[1],
    has: (name: string, value: string) =>
      new RegExp(`name="${name}"[^>]*value="${value}"`).test(text) ||
      text.includes(`<option value="${value}" selected`),
    text,
  };
}

test('a limit with an invalid number keeps the input and shows the error at its field', async () => {
  const fields = { action: 'set', requests: 'many', window_seconds: '60' };
  const wrong = await submit(scene.operator, `/limits/scim?workspace=${scene.shop}`, fields);
  expect([wrong.status, wrong.invalid]).toEqual([400, ['requests']]);
  expect(wrong.problem).toContain('Must be a whole number');
  expect([wrong.has('requests', 'many'), wrong.has('window_seconds', '60')]).toEqual([true, true]);
});

test('the limits table links to a form that is filled with the current values of the bucket', async () => {
  const read = async (path: string) => (await scene.operator.get(path, { accept: 'text/html' })).text();
  const link = `/limits/scim?workspace=${scene.shop}`;
  for (const path of [`/workspaces/${scene.shop}`, `/limits?workspace=${scene.shop}`])
    expect(await read(path)).toContain(`href="${link}#set"`);
  const text = await read(link);
  expect(text).toMatch(/name="requests" value="5000"/);
  expect(text).toMatch(/name="window_seconds" value="86400"/);
});

test('a segment with an invalid name or filter shows the error at that field', async () => {
  const path = `/segments?workspace=${scene.shop}`;
  const fields = {
    action: 'create',
    workspace: scene.shop,
    name: 'Teal',
    purpose: 'kept',
    definition: '{"all": []}',
  };
  const taken = await submit(scene.operator, path, fields);
  expect([taken.status, taken.invalid, taken.has('purpose', 'kept')]).toEqual([400, ['name'], true]);
  expect(taken.problem).toContain('already has this name');
  const broken = await submit(scene.operator, path, { ...fields, definition: '{' });
  expect([broken.invalid, broken.has('name', 'Teal')]).toEqual([['definition'], true]);
  const unconfirmed = await submit(scene.operator, `/segments/${scene.segment}`, {
    ...{ action: 'archive', workspace: scene.shop, confirm: 'no' },
  });
  expect([unconfirmed.status, unconfirmed.invalid]).toEqual([400, ['confirm']]);
});

test('permissions for an unknown workspace or set keep the input and show the error at its field', async () => {
  await scene.query(
    "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, 'Support', '{view_user_profile}')",
    ...[uuidv7(), DEFAULT_COMPANY],
  );
  const { id } = await scene.people.arrive();
  const path = `/accounts/${id}`;
  const set = await submit(admin, path, { action: 'give-permission-set', workspace: 'shop', set: 'Suport' });
  expect([set.status, set.invalid]).toEqual([400, ['set']]);
  expect([set.has('workspace', 'shop'), set.has('set', 'Suport')]).toEqual([true, true]);
  const workspace = await submit(admin, path, {
    action: 'give-permission-set',
    workspace: 'shops',
    set: 'Support',
  });
  expect(workspace.invalid).toEqual(['workspace']);
});

test('an administrator invites a person by email, and the person signs in with a new password', async () => {
  const email = `${uuidv7()}@example.com`;
  const fields = { email: 'nobody', given_name: 'Grace', family_name: 'Hopper' };
  const wrong = await submit(admin, '/accounts', fields);
  expect([wrong.status, wrong.invalid, wrong.has('given_name', 'Grace')]).toEqual([400, ['email'], true]);
  const invited = await submit(admin, '/accounts', { ...fields, email: email.toUpperCase() });
  expect(invited.status).toBe(200);
  const [, token] = /\/invitation\?token=([\w-]{43})/.exec(invited.text)!;
  expect((await scene.people.accept(token!)).status).toBe(303);
  const person = createVisitor(scene.board);
  expect((await person.signIn(email, PASSWORD)).status).toBe(303);
  // The new account has no permissions.
  expect((await person.get('/users', { accept: 'text/html' })).status).toBe(403);
  const again = await submit(admin, '/accounts', { ...fields, email });
  expect([again.status, again.invalid, again.has('email', email)]).toEqual([409, ['email'], true]);
  const [{ id }] = await scene.query('select id from accounts where email = $1', email);
  const { rows } = await searchAudit(scene.installation.database.pool, { subject: id, limit: 10 });
  expect(rows.map(({ action }) => action)).toEqual(
    expect.arrayContaining(['accounts.create', 'invitations.create', 'invitations.accept']),
  );
});

test('an administrator invites only into the own company', async () => {
  const email = `${uuidv7()}@example.com`;
  const fields = { company: uuidv7(), email, given_name: 'Grace', family_name: 'Hopper' };
  expect((await submit(admin, '/accounts', fields)).status).toBe(404);
  expect(await scene.query('select from accounts where email = $1', email)).toEqual([]);
});

test('a segment is downloaded as CSV with its users, by accounts that may export personal data', async () => {
  const path = `/segments/${scene.segment}/users.csv`;
  const file = await scene.operator.get(path);
  expect(file.headers.get('content-type')).toBe('text/csv; charset=utf-8');
  const [head, ...lines] = (await file.text()).trim().split('\r\n');
  expect(head).toBe('external_id,service_id,email,phone,first_name,last_name,custom_attributes.colour');
  expect(lines).toEqual([
    expect.stringMatching(`^user-1,${scene.user},ada@gmail.com,'\\+14155552671,Ada,Lovelace,.+$`),
  ]);
  const [{ definition }] = await scene.query('select definition from segments where id = $1', scene.segment);
  const wider = {
    all: [
      { attribute: 'home_city', equals: 'Rome' },
      // No export has this attribute, so it gets no column.
      { attribute: 'updated_at', after: '2020-01-01T00:00:00Z' },
      {
        any: [
          { custom_attribute: 'shoe', equals: '=40' },
          { custom_attribute: ['size', 'left'], exists: true },
        ],
      },
    ],
  };
  await scene.query('update segments set definition = $2 where id = $1', scene.segment, wider);
  await scene.query(
    `update profiles set home_city = 'Rome', custom_attributes = '{"shoe": "=40", "size": {"left": [1]}}' where id = $1`,
    toProfileId(scene.user),
  );
  expect((await (await scene.operator.get(path)).text()).trim().split('\r\n')).toEqual([
    'external_id,service_id,email,phone,first_name,last_name,home_city,custom_attributes.shoe,custom_attributes.size.left',
    `user-1,${scene.user},ada@gmail.com,'+14155552671,Ada,Lovelace,Rome,'=40,[1]`,
  ]);
  await scene.query('update segments set definition = $2 where id = $1', scene.segment, definition);
  const { rows } = await searchAudit(scene.installation.database.pool, { subject: scene.segment, limit: 1 });
  expect(rows[0]!.action).toBe('segments.download');
  const permissions = ['view_segments', 'view_user_profile', 'export_user_data'];
  const appGroups = [{ workspace: scene.shop, permissions, teams: [] }];
  const { visitor } = await scene.people.arrive([], { appGroups });
  expect((await visitor.get(path)).status).toBe(403);
});

test('an export starts from a form, shows its link once, and keeps a wrong field at its place', async () => {
  const [segment] = await scene.query('select name from segments where id = $1', scene.segment);
  const { text: segmentPage } = await page(scene.operator, `/segments/${scene.segment}`);
  const [, link] = /href="([^"]+)#create">Start export</.exec(segmentPage)!;
  const { text: filled } = await page(scene.operator, link!.replaceAll('&amp;', '&'));
  expect(filled).toContain(`name="segment" value="${segment.name}"`);
  expect(filled).toContain(`<datalist id="create-segment-list"><option value="${segment.name}">`);
  const fields = { workspace: scene.shop, segment: segment.name, fields: 'external_id,shoe_size' };
  const wrong = await submit(scene.operator, '/exports', fields);
  expect([wrong.status, wrong.invalid]).toEqual([400, ['fields']]);
  expect(wrong.problem).toContain('Unknown field: shoe_size; the fields are');
  expect([wrong.has('segment', segment.name), wrong.has('fields', fields.fields)]).toEqual([true, true]);
  const missing = await submit(scene.operator, '/exports', { ...fields, segment: 'none', fields: 'email' });
  expect(missing.invalid).toEqual(['segment']);

  const started = await submit(scene.operator, '/exports', { ...fields, fields: 'external_id, email' });
  expect(started.text).toMatch(/<code class="secret">http:\/\/[^<]+\/exports\/[\w-]+<\/code>/);
  const listed = await (await scene.operator.get(`/exports?workspace=${scene.shop}`)).text();
  expect(listed).toContain('being written');
  const { rows } = await searchAudit(scene.installation.database.pool, { subject: scene.segment, limit: 1 });
  expect(rows[0]).toMatchObject({
    action: 'segments.export',
    detail: { fields: ['external_id', 'email'] },
  });
  const again = await submit(scene.operator, '/exports', { ...fields, fields: 'email' });
  expect([again.status, again.invalid]).toEqual([409, ['segment']]);

  const permissions = ['view_segments', 'view_user_profile', 'export_user_data'];
  const appGroups = [{ workspace: scene.shop, permissions, teams: [] }];
  const { visitor } = await scene.people.arrive([], { appGroups });
  expect((await post(visitor, '/exports', fields)).status).toBe(403);
});

test('an error page leads back to the form that was sent, and otherwise to the start page', async () => {
  const { url } = scene.board;
  const linkOf = async (path: string, referer?: string) => {
    const answer = await scene.operator.get(path, { ...html, ...(referer !== undefined && { referer }) });
    expect(answer.status).toBe(400);
    return /<a href="([^"]+)">(Back to [^<]+)</.exec(await answer.text())?.slice(1);
  };
  const start = ['/home', 'Back to the start page'];
  expect(await linkOf('/audit?from=then')).toEqual(start);
  expect(await linkOf('/audit?from=then', `${url}/audit?actor=ada`)).toEqual([
    '/audit?actor=ada',
    'Back to the form',
  ]);
  for (const referer of [
    `${url}/audit?from=then`,
    `${url}/users`,
    'https://elsewhere.example/audit',
    'audit',
  ])
    expect([referer, await linkOf('/audit?from=then', referer)]).toEqual([referer, start]);
  const sent = (referer: string) =>
    scene.operator.send('POST', `/dead-letters/${scene.shop}`, {
      body: new URLSearchParams({ action: 'replay' }),
      headers: { ...html, referer },
    });
  expect(await (await sent(`${url}/dead-letters?workspace=shop`)).text()).toContain(
    '<a href="/dead-letters?workspace=shop">Back to the form</a>',
  );
  expect(await (await sent(`${url}//elsewhere.example`)).text()).toContain('Back to the start page');
});
