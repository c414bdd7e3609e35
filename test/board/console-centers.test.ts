import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { toProfileId } from '../../src/profile/identifier.ts';
import { type Console, html, openConsole, page, post } from './console-scene.ts';
import type { Visitor } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

const arriveWith = async (...permissions: string[]): Promise<Visitor> =>
  (await scene.people.arrive([], { appGroups: [{ workspace: scene.shop, permissions, teams: [] }] })).visitor;

describe('groups', () => {
  test("groups are listed with the states of a selected user or of the user's address", async () => {
    const archived = uuidv7();
    await scene.query(
      `insert into subscription_groups (id, workspace_id, name, channel, archived_at)
       values ($1, $2, 'Old <b>news</b>', 'sms', now())`,
      ...[archived, scene.shop],
    );
    await scene.query(
      `insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
       values ($1, 'email', 'ada@gmail.com', $2, 'unsubscribed', now())`,
      ...[scene.shop, scene.group],
    );
    const viewer = await arriveWith('manage_subscription_groups', 'view_user_profile');
    const { text } = await page(viewer, '/groups?user=user-1');
    for (const shown of ['News', scene.group, 'Old &lt;b&gt;news&lt;/b&gt;', 'archived'])
      expect(text).toContain(shown);
    expect(text).toMatch(/>no state<.*>unsubscribed</s);
    expect(text).not.toContain('ada@gmail.com');
    expect((await page(viewer, '/groups')).text).not.toContain('no state');
    await scene.query('delete from subscription_states');
  });

  test.each(['/preference-centers'])('%s accepts a page start that Postgres cannot store', async (path) => {
    const viewer = await arriveWith('manage_subscription_groups', 'view_preference_centers');
    expect((await page(viewer, `${path}?after=%00a%ed%a0%80`)).status).toBe(200);
  });

  test('a user cannot be found by an address without the right to see addresses', async () => {
    await scene.createUser(scene.shop, 'eve@example.com');
    const viewer = await arriveWith('manage_subscription_groups', 'view_user_profile');
    const knows = await arriveWith('manage_subscription_groups', 'view_user_profile', 'view_pii');
    const statuses = [viewer, knows].map(
      async (one) => (await page(one, '/groups?user=eve@example.com')).status,
    );
    expect(await Promise.all(statuses)).toEqual([404, 200]);
  });

  test('the page offers a form if a workspace has no group, and lists 80 groups in pages', async () => {
    expect((await page(scene.operator, '/groups?workspace=school')).text).toContain('Create group');
    await scene.query(
      `insert into subscription_groups (id, workspace_id, name, channel)
       select ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, $1, 'group ' || lpad(n::text, 3, '0'), 'email'
       from generate_series(1, 80) as n`,
      scene.school,
    );
    const { text } = await page(scene.operator, '/groups?workspace=school');
    const [, next] = /rel="next" href="([^"]+)"/.exec(text)!;
    expect(text).toContain('group 080');
    expect(text).not.toContain('group 030');
    const second = await page(scene.operator, next!.replaceAll('&amp;', '&'));
    for (const shown of ['group 030', 'group 001']) expect(second.text).toContain(shown);
    expect(second.text).not.toContain('rel="next"');
  });

  test('a group can be created and archived, each with an audit entry', async () => {
    const answer = await post(scene.operator, '/groups', {
      ...{ workspace: scene.shop, name: 'Hints', channel: 'email' },
    });
    const [, id = ''] = /^\/groups\/([0-9a-f-]{36})/.exec(answer.headers.get('location')!)!;
    expect((await page(scene.operator, `/groups/${id}?workspace=shop`)).text).toContain('Archive group');
    expect((await post(scene.operator, `/groups/${id}`, { confirm: 'Hint' })).status).toBe(400);
    expect((await post(scene.operator, `/groups/${id}`, { confirm: 'Hints' })).status).toBe(303);
    const auditRows = await scene.query('select action from audit where subject_id = $1 order by id', id);
    expect(auditRows).toEqual([
      { action: 'subscription_groups.create' },
      { action: 'subscription_groups.archive' },
    ]);
  });

  test('a form with an error keeps its values and shows the error at the field', async () => {
    const fields = { workspace: scene.shop, name: 'News', channel: 'email' };
    const taken = await post(scene.operator, '/groups', fields);
    const text = await taken.text();
    expect(taken.status).toBe(409);
    expect(text).toContain('This workspace already has a group with the name &#39;News&#39;');
    expect(text).toMatch(/name="name" value="News"[^>]* aria-invalid="true"/);
    expect(text).toContain('<option value="email" selected>');
    const empty = await post(scene.operator, '/groups', { ...fields, name: ' ' });
    expect([empty.status, await empty.text()]).toEqual([400, expect.stringContaining('Name is required.')]);
  });
});

describe('preference centers', () => {
  const preview = (visitor: Visitor, query = '') =>
    visitor.get(`/preference-centers/${scene.center}/preview${query}`, html);

  test('preference centers are listed by workspace, with a hint if there are none', async () => {
    expect((await page(scene.operator, '/preference-centers?workspace=shop')).text).toContain('What we send');
    expect((await page(scene.operator, '/preference-centers?workspace=school')).text).toContain(
      'No preference center yet',
    );
  });

  test("a preview shows the user's values, and its policy blocks requests and scripts", async () => {
    const knows = await arriveWith('view_preference_centers', 'view_user_profile', 'view_pii');
    const answer = await preview(knows, '?user=user-1');
    const text = await answer.text();
    expect(text).toContain('Hello Ada of ada@gmail.com, teal');
    expect(text).not.toContain('checked');
    expect(answer.headers.get('content-security-policy')).toBe(
      "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox",
    );
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    for (const gone of [' href=', ' action=', ' src=']) expect(text).not.toContain(gone);
    const confirmation = await preview(knows, '?user=user-1&template=confirmation');
    expect(await confirmation.text()).toContain('Saved, Ada');
  });

  test('the preview ticks the boxes of subscribed groups, and uses sample values without a user', async () => {
    await scene.query(
      `insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
       values ($1, 'email', 'ada@gmail.com', $2, 'subscribed', now())`,
      ...[scene.shop, scene.group],
    );
    expect(await (await preview(scene.operator, '?user=user-1')).text()).toContain('checked');
    const madeUp = await (await preview(scene.operator)).text();
    expect(madeUp).toContain('Hello sample of sample');
    expect(madeUp).toContain('checked');
  });

  test('a preview masks values without view_pii, and needs view_user_profile to select a user', async () => {
    const viewer = await arriveWith('view_preference_centers', 'view_user_profile');
    const text = await (await preview(viewer, '?user=user-1')).text();
    expect(text).toContain('Hello ••• of •••, <');
    const shown = await page(viewer, `/preference-centers/${scene.center}?user=user-1`);
    expect(shown.text).toContain('values are masked');
    for (const secret of ['ada@gmail.com', 'Ada', 'teal', 'Lovelace'])
      for (const one of [text, shown.text]) expect(one).not.toContain(secret);
    const centers = await arriveWith('edit_preference_centers');
    expect((await page(centers, `/preference-centers/${scene.center}`)).text).not.toContain('name="user"');
    expect((await preview(centers, '?user=user-1')).status).toBe(403);
  });

  test('a template that cannot be rendered shows the escaped error in its frame', async () => {
    const broken = uuidv7();
    await scene.query(
      `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
       values ($1, $2, 'Broken', 'B', $3, '', 'draft')`,
      ...[scene.shop, broken, "{% '<img src=x>' %}"],
    );
    const answer = await scene.operator.get(`/preference-centers/${broken}/preview`, html);
    const text = await answer.text();
    expect([answer.status, text]).toEqual([200, expect.stringContaining('The preview failed: line 1: ')]);
    expect(text).not.toContain('<img');
    expect((await page(scene.operator, `/preference-centers/${broken}?user=user-1`)).text).toContain(
      'The preference center is a draft',
    );
  });

  test('the page warns if a link would not work for the selected user', async () => {
    const id = await scene.createUser(scene.shop, 'without an address');
    await scene.query('update profiles set email = null where id = $1', id);
    expect(toProfileId(scene.user)).not.toBe(id);
    const { text } = await page(
      scene.operator,
      `/preference-centers/${scene.center}?user=without+an+address`,
    );
    expect(text).toContain('A link opens nothing for this user');
  });

  test('the list of groups has one form for workspace and user, and older groups keep the user', async () => {
    await scene.query(
      `insert into subscription_groups (workspace_id, id, name, channel, created_at)
       select $1, gen_random_uuid(), 'many ' || n, 'email', now() from generate_series(1, 51) as n`,
      scene.shop,
    );
    const { text } = await page(scene.operator, '/groups?workspace=shop&user=user-1');
    expect([...text.matchAll(/<form[^>]*method="get"/g)]).toHaveLength(1);
    expect([...text.matchAll(/name="workspace"/g)]).toHaveLength(2);
    expect(text).toContain("This user's state".replace("'", '&#39;'));
    const [, older = ''] = /rel="next" href="([^"]*)"/.exec(text)!;
    expect(older).toContain('user=user-1');
    const next = await page(scene.operator, older.replaceAll('&amp;', '&'));
    expect(next.text).toContain('value="user-1"');
  });
});
