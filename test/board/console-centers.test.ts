import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { toProfileId, toServiceId } from '../../src/profile/identifier.ts';
import { PostgresClient } from '../../src/store/postgres-client.ts';
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

  test('the page of groups searches the selected user once', async () => {
    const query = vi.spyOn(PostgresClient.prototype, 'query');
    onTestFinished(() => query.mockRestore());
    expect((await page(scene.operator, '/groups?workspace=shop&user=user-1')).text).toContain('no state');
    const named = query.mock.calls.map(([given]) => (given as { name?: string } | undefined)?.name);
    expect(named.filter((name) => name === 'search-users')).toHaveLength(1);
  });

  test('a user cannot be found by an address without the right to see addresses', async () => {
    await scene.createUser(scene.shop, 'eve@example.com');
    const viewer = await arriveWith('manage_subscription_groups', 'view_user_profile');
    const knows = await arriveWith('manage_subscription_groups', 'view_user_profile', 'view_pii');
    const statuses = [viewer, knows].map(
      async (one) => (await page(one, '/groups?user=eve@example.com')).status,
    );
    expect(await Promise.all(statuses)).toEqual([400, 200]);
  });

  test('each group has the number of its subscribed and unsubscribed, counted up to 10,000', async () => {
    const [large, none] = [uuidv7(), uuidv7()];
    for (const [id, name] of [
      [large, 'Large'],
      [none, 'Without states'],
    ])
      await scene.query(
        "insert into subscription_groups (id, workspace_id, name, channel) values ($1, $2, $3, 'email')",
        ...[id, scene.shop, name],
      );
    await scene.query(
      `insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
       select $1, 'email', n || '@example.com', $2, case when n <= 10001 then 'subscribed' else 'unsubscribed' end, now()
       from generate_series(1, 11234) as n`,
      ...[scene.shop, large],
    );
    const viewer = await arriveWith('manage_subscription_groups');
    const { text } = await page(viewer, '/groups');
    const counts = (name: string) => {
      const [row = ''] = text.split('<tr>').filter((one) => one.includes(`>${name}</a>`));
      return [...row.matchAll(/data-label="(?:Unsubscribed|Subscribed)" class="number">([^<]*)</g)].map(
        ([, one]) => one,
      );
    };
    expect(counts('Large')).toEqual(['10,000+', '1,233']);
    expect(counts('Without states')).toEqual(['0', '0']);
    await scene.query('delete from subscription_states');
    await scene.query('delete from subscription_groups where id = any($1)', [large, none]);
  });

  test('a user is found by external id, email, phone, alias or service id', async () => {
    const id = await scene.createUser(scene.shop, 'grace-1', 'grace@example.com');
    await scene.query("update profiles set phone = '+4915112345678' where id = $1", id);
    await scene.query(
      `insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)
       values ($1, 'crm', 'g-7', $2, now())`,
      ...[scene.shop, id],
    );
    const viewer = await arriveWith('manage_subscription_groups', 'view_user_profile', 'view_pii');
    const named = ['grace-1', 'Grace@Example.com', '+49 1511 2345678', 'crm:g-7', 'g-7', toServiceId(id)];
    for (const user of named) {
      const { status, text } = await page(viewer, `/groups?${new URLSearchParams({ user })}`);
      expect([user, status, text.includes('>no state<')]).toEqual([user, 200, true]);
    }
  });

  test('an unknown or shared identifier is an error at the field, which keeps the input', async () => {
    for (const externalId of ['twin-1', 'twin-2'])
      await scene.createUser(scene.shop, externalId, 'twins@example.com');
    for (const [user, problem] of [
      ['nobody', 'No user of the workspace has this identifier.'],
      ['twins@example.com', 'Several users have this identifier.'],
      ['x'.repeat(1001), 'No user of the workspace has this identifier.'],
    ] as const) {
      const { status, text } = await page(scene.operator, `/groups?workspace=shop&user=${user}`);
      expect(status).toBe(400);
      expect(text).toMatch(new RegExp(`name="user" value="${user}"[^>]* aria-invalid="true"`));
      expect(text).toContain(problem);
      expect(text).toContain('data-label="Subscribed"');
    }
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
      'No preference centers yet',
    );
  });

  const template =
    '<form action="{{preference_center_submit_url}}" method="post">\n<button>Save</button></form>';
  const newCenter = (change: Record<string, string> = {}) => ({
    ...{ workspace: scene.shop, name: `center-${uuidv7()}`, title: 'Your choices', page: template },
    ...{ confirmation: '<p>Saved</p>', viewport: 'width=device-width', icons: '', state: 'draft' },
    ...change,
  });
  const createCenter = async (change: Record<string, string> = {}): Promise<string> => {
    const { headers } = await post(scene.operator, '/preference-centers', newCenter(change));
    const [, id = ''] = /^\/preference-centers\/([0-9a-f-]{36})/.exec(headers.get('location') ?? '')!;
    return id;
  };
  const stored = async (id: string) =>
    (await scene.query('select * from preference_centers where id = $1', id))[0];

  test('a center is created and changed with forms, each with an audit entry in its transaction', async () => {
    const icon = '<link rel="icon" href="https://example.com/a&amp;b.png">';
    const name = `center-${uuidv7()}`;
    const id = await createCenter({ name, icons: icon, page: template.replaceAll('\n', '\r\n') });
    const options = {
      'meta-viewport-content': 'width=device-width',
      'links-tags': [{ rel: 'icon', href: 'https://example.com/a&b.png' }],
    };
    expect(await stored(id)).toMatchObject({ name, title: 'Your choices', page_html: template, options });
    const { text } = await page(scene.operator, `/preference-centers/${id}?workspace=shop&done=create`);
    for (const shown of ['Created. The preview is below.', '<iframe', 'The HTML, a Liquid template of 1 to'])
      expect(text).toContain(shown);
    expect(text).toMatch(/<textarea name="page"[^>]*>\n&lt;form action=/);
    expect(text).toContain(
      '&lt;link rel=&quot;icon&quot; href=&quot;https://example.com/a&amp;amp;b.png&quot;&gt;',
    );
    const path = `/preference-centers/${id}`;
    const filled = { ...newCenter({ icons: icon }), action: 'change' };
    expect((await post(scene.operator, path, filled)).status).toBe(303);
    const next = { ...filled, page: '<p>New page</p>', viewport: '', icons: '', state: 'active' };
    expect((await post(scene.operator, path, next)).status).toBe(303);
    expect(await stored(id)).toMatchObject({
      name,
      state: 'active',
      page_html: '<p>New page</p>',
      options: {},
    });
    const audit = await scene.query('select action, detail from audit where subject_id = $1 order by id', id);
    expect(audit).toEqual([
      { action: 'preference_centers.create', detail: { name, state: 'draft' } },
      {
        action: 'preference_centers.change',
        detail: { name, changed: ['pageHtml', 'options', 'state'] },
      },
    ]);
  });

  test('a new center with an error keeps the input and has the error at its field', async () => {
    const cases: [field: string, change: Record<string, string>, problem: string | RegExp][] = [
      ['name', { name: 'two words' }, 'Name is not valid: it must be 1 to 255 letters, digits, - and _'],
      ['name', { name: 'Choices' }, /already has a preference center with the name/],
      ['page', { page: 'first line\n{% nonsense %}' }, 'Page is not valid: line 2: '],
      ['page', { page: '' }, 'Page is required.'],
      ['page', { page: 'x'.repeat(262_145) }, 'it must be a string of 1 to 262144 characters'],
      ['confirmation', { confirmation: '{{ a | none }}' }, 'Confirmation is not valid: line 1: '],
      [
        'page',
        { page: `{% form_field_name :subscription_group ${uuidv7()} %}` },
        'there is no subscription group',
      ],
      ['icons', { icons: '<script></script>' }, 'It has the element script.'],
      [
        'icons',
        { icons: '<link rel="stylesheet" href="a">' },
        'Icons is not valid: it must be icon, shortcut icon',
      ],
      ['icons', { icons: 'icon.png' }, 'It has the text &#39;icon.png&#39;.'],
      [
        'viewport',
        { viewport: 'v'.repeat(2049) },
        'Viewport is not valid: it must be a string of at most 2048',
      ],
      ['state', { state: 'on' }, 'Must be one of: active, draft.'],
    ];
    for (const [field, change, problem] of cases) {
      const answer = await post(
        scene.operator,
        '/preference-centers',
        newCenter({ title: 'Kept', ...change }),
      );
      const text = await answer.text();
      expect([field, answer.status >= 400 && answer.status < 500]).toEqual([field, true]);
      expect(text).toMatch(new RegExp(`name="${field}"[^>]*aria-invalid="true"`));
      expect(text).toMatch(problem);
      expect(text).toContain('name="title" value="Kept"');
      expect(text).toMatch(/<textarea name="confirmation"/);
    }
    const kept = await post(scene.operator, '/preference-centers', newCenter({ page: '{% nonsense %}' }));
    expect(await kept.text()).toMatch(/<textarea name="page"[^>]*>\n\{% nonsense %\}</);
  });

  test('a change with an error keeps the input, and changes nothing', async () => {
    const id = await createCenter();
    const before = await stored(id);
    const change = { ...newCenter({ title: 'Kept', page: '{% nonsense %}' }), action: 'change' };
    const answer = await post(scene.operator, `/preference-centers/${id}`, change);
    const text = await answer.text();
    expect(answer.status).toBe(400);
    expect(text).toMatch(/<textarea name="page"[^>]*aria-invalid="true"[^>]*>\n\{% nonsense %\}</);
    expect(text).toContain('name="title" value="Kept"');
    expect(await stored(id)).toEqual(before);
  });

  test('two templates of the maximum length fit into the form', async () => {
    const longest = '<p>é</p>'.padEnd(262_144, '<');
    const id = await createCenter({ page: longest, confirmation: longest });
    expect((await stored(id)).confirmation_html).toBe(longest);
  });

  test('the forms need edit_preference_centers, and other viewers see the templates', async () => {
    const [views, edits] = [
      await arriveWith('view_preference_centers'),
      await arriveWith('edit_preference_centers'),
    ];
    const path = `/preference-centers/${scene.center}`;
    const seen = (await page(views, path)).text;
    expect(seen).toContain('<summary>Confirmation</summary>');
    expect(seen).not.toContain('<textarea');
    expect((await page(views, '/preference-centers')).text).not.toContain('Create preference center');
    for (const [where, action] of [
      ['/preference-centers', ''],
      [path, 'change'],
    ] as const)
      expect((await post(views, where, { ...newCenter(), action })).status).toBe(403);
    expect((await page(edits, path)).text).toContain('<textarea name="page"');
    expect((await post(edits, '/preference-centers', newCenter())).status).toBe(303);
  });

  test('an empty workspace offers the form instead of an API call', async () => {
    const { text } = await page(scene.operator, '/preference-centers?workspace=school');
    expect(text).toContain('Create one below.');
    expect(text).toMatch(/<details class="card create" id="create" open>/);
    expect(text).not.toContain('POST /preference_center');
  });

  test('the page names an unknown user at the field and keeps the input', async () => {
    const path = `/preference-centers/${scene.center}?user=nobody+knows`;
    const { text } = await page(scene.operator, path);
    expect(text).toMatch(/name="user" value="nobody knows"[^>]* aria-invalid="true"/);
    expect(text).toContain('No user of the workspace has this identifier.');
    expect(text).toContain('With sample values');
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
