import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import { encodeTraces } from '../../src/jobs/traces.ts';
import { floorOf, NIL_UUID } from '../../src/platform/ids.ts';
import { type Identifier, newProfileId, toServiceId } from '../../src/profile/identifier.ts';
import { pack } from '../../src/queue/pack.ts';
import { BETWEEN, changeStamp, END } from '../../src/store/attribute-changes.ts';
import { removeProfiles } from '../../src/store/profiles.ts';
import { addRefusedOfUsers, dayOf, nameOf, type RefusalOfUser } from '../../src/store/refused-of-users.ts';
import { recordStateChanges } from '../../src/store/subscription-history.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { indexUsers } from '../../src/store/user-search.ts';
import { waitUntil } from '../setup/wait-until.ts';
import { type Console, html, openConsole, page, post } from './console-scene.ts';
import { failedEvent } from './installation.ts';
import { DEFAULT_COMPANY } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

describe('users', () => {
  const pathsIn = (text: string) =>
    [...text.matchAll(/href="(\/users\/[0-9a-f]{24})/g)].map(([, path]) => path);
  const fillIndex = async () => {
    await scene.query('update user_search_pass set workspace_id = $1, profile_id = $1', NIL_UUID);
    for (let ended = false; !ended; ) {
      await scene.query("update user_search_pass set leased_until = '-infinity'");
      ({ ended } = (await indexUsers(scene.installation.database.pool))!);
    }
  };
  const search = async (q: string, visitor = scene.operator) =>
    pathsIn((await page(visitor, `/users?q=${encodeURIComponent(q)}&workspace=${scene.shop}`)).text);

  test('users are found by each identifier or the start of an external id, and by no other text', async () => {
    const id = await scene.createUser(scene.shop, 'Zoë:1', 'zoe@gmail.com');
    const path = `/users/${toServiceId(id)}`;
    await scene.query("update profiles set phone = '+14155550123' where id = $1", id);
    await scene.query(
      "insert into user_aliases values ($1, 'crm', 'Z-1', $2, now()), ($1, 'loyalty', 'L:7', $2, now())",
      ...[scene.shop, id],
    );
    await scene.query(
      "insert into deprecated_external_ids values ($1, 'zoe-old', $2, now())",
      scene.shop,
      id,
    );
    for (const text of [
      'Zoë:1',
      'Zoë',
      'Z',
      'zoe-old',
      'Z-1',
      'crm:Z-1',
      'loyalty:L:7',
      'L:7',
      'ZOE@gmail.com',
      '+1 415 555 0123',
      '14155550123',
      '1 (415) 555-0123',
      '+1415555012\uff13',
      toServiceId(id),
    ])
      expect([text, await search(text)]).toEqual([text, expect.arrayContaining([path])]);
    for (const text of ['crm:L:7', 'Zoë:10', 'Z_', 'Z%', "'", '\u0000', 'crm:'])
      expect([text, await search(text)]).toEqual([text, []]);
  });

  test('users are found by the exact start of their external id, at most 50', async () => {
    await scene.query(
      `insert into profiles (workspace_id, id, external_id, created_at, updated_at)
       select $1, gen_random_uuid(), 'many-' || n, now(), now() from generate_series(1, 70) as n`,
      scene.shop,
    );
    const { text } = await page(scene.operator, `/users?q=many-&workspace=${scene.shop}`);
    expect(pathsIn(text)).toHaveLength(50);
    expect(text).toContain('70 users found');
    expect(await search('many-7')).toHaveLength(2);
    expect(await search('many_')).toEqual([]);
  });

  test('users are found by parts of their name and identifiers, newest first, page by page', async () => {
    const workspace = uuidv7();
    await scene.query(
      "insert into workspaces (id, name, company_id) select $1, 'parts', company_id from workspaces where id = $2",
      ...[workspace, scene.shop],
    );
    const add = (n: number, values: string) =>
      scene.query(
        `insert into profiles (workspace_id, id, external_id, first_name, last_name, email, phone, phone_valid, created_at, updated_at)
         values ($1, $2, ${values}, true, now(), now())`,
        ...[workspace, newProfileId(Date.now() + n)],
      );
    await add(1, "'crm-77810', 'Zoë', 'Lovelace-Byron', 'z.byron@mail.example', '+14155550199'");
    for (let n = 2; n < 62; n++) await add(n, `'number-${n}', 'Ada', 'Many', null, null`);
    await fillIndex();
    const search = async (query: string) =>
      (await page(scene.operator, `/users?workspace=${workspace}&${query}`)).text;
    for (const q of ['zoe', 'LOVELACE', 'byron zoë', '.byron@mail', '555-0199', 'm-7781'])
      expect([q, pathsIn(await search(`q=${encodeURIComponent(q)}`)).length]).toEqual([q, 1]);
    for (const q of ['zoe many', 'byron_', '%25%25%25', 'zzz'])
      expect([q, pathsIn(await search(`q=${q}`)).length]).toEqual([q, 0]);
    const first = await search('q=ada');
    expect(first).toContain('60 users found');
    const next = /rel="next" href="([^"]+)"/.exec(first)![1]!.replaceAll('&amp;', '&');
    const second = (await page(scene.operator, next)).text;
    expect(new Set([...pathsIn(first), ...pathsIn(second)]).size).toBe(60);
    expect(pathsIn(await search('q=ada&has_email=yes'))).toEqual([]);
    expect(pathsIn(await search('has_email=yes&has_phone=yes'))).toHaveLength(1);
    expect(pathsIn(await search('email_state=unsubscribed'))).toEqual([]);
    expect(pathsIn(await search('created_after=2199-01-01'))).toEqual([]);
    expect((await page(scene.operator, `/users?email_state=no&workspace=${workspace}`)).status).toBe(400);
  });

  test('a changed name replaces the former one in the search, and a deleted user leaves it', async () => {
    const id = await scene.createUser(scene.shop, 'renamed', 'renamed@gmail.com');
    await scene.query("update profiles set first_name = 'Wilhelmina' where id = $1", id);
    await fillIndex();
    expect(await search('helmin')).toHaveLength(1);
    await scene.query("update profiles set first_name = 'Hopper' where id = $1", id);
    await fillIndex();
    expect([await search('helmin'), await search('hopper')]).toEqual([[], [`/users/${toServiceId(id)}`]]);
    const keys = [{ workspaceId: scene.shop, id }];
    await inTransaction(scene.installation.database.pool, (tx) => removeProfiles(tx, keys));
    expect(await scene.query('select from user_search where profile_id = $1', id)).toEqual([]);
  });

  const uses = {
    locks: ['select from profiles where workspace_id = $1 and id = $2 for update'],
    'updates and then locks': [
      "update profiles set first_name = 'Grace', updated_at = now() where workspace_id = $1 and id = $2",
      'select from profiles where workspace_id = $1 and id = $2 for update',
    ],
  };

  test.each(Object.entries(uses))(
    'the search omits a user whom a batch %s until the next pass, and does not wait',
    async (_, statements) => {
      const id = await scene.createUser(scene.shop, 'locked', 'locked@gmail.com');
      await scene.query("update profiles set first_name = 'Grace' where id = $1", id);
      await inTransaction(scene.installation.database.pool, async (batch) => {
        for (const statement of statements) await batch.query(statement, [scene.shop, id]);
        await fillIndex();
      });
      expect(await search('grace')).toEqual([]);
      await fillIndex();
      expect(await search('grace')).toEqual([`/users/${toServiceId(id)}`]);
      const keys = [{ workspaceId: scene.shop, id }];
      await inTransaction(scene.installation.database.pool, (tx) => removeProfiles(tx, keys));
    },
  );

  test("a user's timeline lists 130 events across pages without gaps", async () => {
    const id = await scene.createUser(scene.shop, 'busy');
    const merged = newProfileId(Date.now());
    await scene.query('insert into merged_profiles values ($1, $2, $3, now())', scene.shop, merged, id);
    const deeds = Array.from({ length: 130 }, (_, n) => ({
      id: uuidv7({ msecs: Date.now() - n * 1000 }),
      n,
    }));
    for (const { id: deed, n } of deeds) {
      const owner = n % 10 === 0 ? merged : id;
      if (n % 7 === 0)
        await scene.query(
          `insert into purchases values ($1, $2, $3, $4, 'EUR', 9.995, 2, now() - $5 * interval '1 hour', null, null)`,
          ...[scene.shop, deed, owner, `deed-${n}-`, n],
        );
      else
        await scene.query(
          `insert into events values ($1, $2, $3, $4, now() - $5 * interval '1 hour', 'app', '{"size": {"xl": true}}')`,
          ...[scene.shop, deed, owner, `deed-${n}-`, n],
        );
    }
    const seen: string[] = [];
    let path: string | undefined = `/users/${toServiceId(id)}?workspace=${scene.shop}`;
    for (let turn = 0; path && turn < 5; turn++) {
      const { status, text } = await page(scene.operator, path);
      expect(status).toBe(200);
      expect(text).toContain('2 × <span title="9.995 EUR">10.00 EUR</span>');
      seen.push(...[...text.matchAll(/deed-\d+-/g)].map(([name]) => name));
      path = /rel="next" href="([^"]+)"/.exec(text)?.[1]?.replaceAll('&amp;', '&');
    }
    expect(seen).toEqual(deeds.map(({ n }) => `deed-${n}-`));
  });

  test('the timeline is sorted by when things happened, and filtered by kind', async () => {
    const id = await scene.createUser(scene.shop, 'backfilled', 'backfilled@gmail.com');
    const gone = newProfileId(Date.now());
    await scene.query(
      "insert into merged_profiles values ($1, $2, $3, now() - interval '3 days', 'was-before')",
      ...[scene.shop, gone, id],
    );
    const years = ['2019', '2022', '2020'];
    for (const year of years)
      await scene.query(
        "insert into events values ($1, $2, $3, $4, $5, 'app', '{}')",
        ...[scene.shop, uuidv7(), id, `happened-${year}-`, `${year}-05-05T00:00:00Z`],
      );
    await scene.letterIn(scene.shop, { identifiers: [{ external_id: 'backfilled' }], reason: 'too-much-' });
    const path = `/users/${toServiceId(id)}?workspace=${scene.shop}`;
    const timelineOf = async (kind: string) => {
      const { text } = await page(scene.operator, `${path}&kind=${kind}`);
      const shown = text.slice(text.indexOf('id="timeline"'), text.indexOf('id="letters"'));
      return shown.match(/happened-\d+-|was-before|too-much-/g) ?? [];
    };
    const events = ['happened-2022-', 'happened-2020-', 'happened-2019-'];
    expect(await timelineOf('')).toEqual(['too-much-', 'was-before', ...events]);
    expect(await timelineOf('events')).toEqual(events);
    expect(await timelineOf('purchases')).toEqual([]);
    expect(await timelineOf('identity')).toEqual(['was-before']);
    expect(await timelineOf('failed')).toEqual(['too-much-']);
    const { text } = await page(scene.operator, path);
    expect(text).toMatch(/title="2019-05-05 00:00:00 UTC, accepted 20/);
    expect((await page(scene.operator, `${path}&kind=no`)).status).toBe(404);
  });

  test('the timeline shows changes of attributes and refused objects, each as a kind and across pages', async () => {
    const { shop } = scene;
    const id = await scene.createUser(shop, 'traced', 'traced@gmail.com');
    const path = `/users/${toServiceId(id)}?workspace=${shop}`;
    const now = Date.now();
    const ago = (minutes: number) => floorOf(now - minutes * 60_000);
    const entry = (minutes: number, names: string) => changeStamp(ago(minutes), ago(minutes)) + names + END;
    await scene.query(
      'update profiles set attribute_changes = $1 where id = $2',
      [entry(1, `plan-1-${BETWEEN}<b>`), entry(3, 'plan-3-'), entry(5, 'x'.repeat(200)), 'incomplete-'].join(
        '',
      ),
      id,
    );
    const gone = newProfileId(Date.now());
    await scene.query(
      "insert into merged_profiles values ($1, $2, $3, now() - interval '90 minutes', 'traced-old')",
      ...[shop, gone, id],
    );
    const object = (minutes: number, index: number, field: string) => ({
      ...{ requestId: ago(minutes), operation: 'users.track', inputArray: 'events', index },
      ...{ reason: 'required', field },
    });
    const refused = (identifier: Identifier, objects: RefusalOfUser[]) => ({
      ...{ workspaceId: shop, name: nameOf(shop, identifier), day: dayOf(objects[0]!.requestId), objects },
    });
    const many = Array.from({ length: 20 }, (_, n) => object(10, n, `many-${n}-`));
    await addRefusedOfUsers(scene.installation.database.pool, [
      refused({ external_id: 'traced' }, [object(2, 3, 'field-2-')]),
      refused({ email: 'traced@gmail.com' }, [object(4, 0, 'field-4-')]),
      refused({ service_id: toServiceId(id) }, many),
      refused({ external_id: 'traced-old' }, [object(80, 1, 'later-'), object(100, 1, 'field-100-')]),
      refused({ external_id: 'another' }, [object(1, 1, 'another-')]),
    ]);
    await scene.query(
      `insert into events select $1, uuid_v7_floor(now() - interval '1 hour') , $2, 'event-' || n || '-', now() - interval '1 hour', 'app', '{}'
       from generate_series(1, 1) as n`,
      ...[shop, id],
    );
    const marks = /(?:plan|field|many|event)-\d+-|later-|another-|incomplete-/g;
    const timelineOf = async (query: string, visitor = scene.operator) => {
      const { text } = await page(visitor, `${path}${query}`);
      return text.slice(text.indexOf('id="timeline"'), text.indexOf('id="letters"'));
    };
    const whole = await timelineOf('');
    expect(whole.match(marks)).toEqual([
      ...['plan-1-', 'field-2-', 'plan-3-', 'field-4-'],
      ...many.map((_, n) => `many-${n}-`),
      ...['event-1-', 'field-100-'],
    ]);
    expect(whole).toContain('plan-1-, &lt;b&gt;');
    expect(whole).toContain(`${'x'.repeat(200)} and more`);
    expect(whole).toContain(`/requests/${ago(1).slice(0, 8)}`);
    expect((await timelineOf('&kind=attributes')).match(marks)).toEqual(['plan-1-', 'plan-3-']);
    const kind = await timelineOf('&kind=refused');
    expect(kind.match(marks)).toHaveLength(23);
    expect(kind).toContain('users.track');
    const { visitor } = await scene.people.arrive([], {
      appGroups: [{ workspace: shop, permissions: ['view_user_profile'], teams: [] }],
    });
    const masked = await timelineOf('', visitor);
    expect(masked.match(marks)).toHaveLength(26);
    expect(masked).not.toMatch(/traced@|href="\/requests/);
  });

  test('a timeline with refused objects of one millisecond has pages without gaps', async () => {
    const { shop } = scene;
    const id = await scene.createUser(shop, 'refused-often');
    const expected: string[] = [];
    for (let day = 0; day < 4; day++) {
      const requestId = floorOf(Date.now() - day * 86_400_000);
      const objects = Array.from({ length: 20 }, (_, index) => ({
        ...{ requestId, operation: 'users.track', inputArray: 'events', index },
        ...{ reason: 'required', field: `often-${day}-${index}-` },
      }));
      expected.push(...objects.map(({ field }) => field));
      const row = {
        workspaceId: shop,
        name: nameOf(shop, { external_id: 'refused-often' }),
        day: dayOf(requestId),
      };
      await addRefusedOfUsers(scene.installation.database.pool, [{ ...row, objects }]);
    }
    const seen: string[] = [];
    let path: string | undefined = `/users/${toServiceId(id)}?workspace=${shop}`;
    for (let turn = 0; path && turn < 5; turn++) {
      const { text } = await page(scene.operator, path);
      seen.push(...[...text.matchAll(/often-\d+-\d+-/g)].map(([name]) => name));
      path = /rel="next" href="([^"]+)"/.exec(text)?.[1]?.replaceAll('&amp;', '&');
    }
    expect(seen).toEqual(expected);
  });

  test('a link to a preference center is created for a user with an email, and recorded', async () => {
    const id = await scene.createUser(scene.shop, 'chooses', 'chooses@gmail.com');
    const path = `/users/${toServiceId(id)}`;
    const [, center] = /name="center"><option value="([^"]+)"/.exec(
      (await page(scene.operator, `${path}?workspace=${scene.shop}`)).text,
    )!;
    const send = (fields: Record<string, string>) =>
      post(scene.operator, `${path}/preference-link?workspace=${scene.shop}`, fields);
    const answer = await send({ center: center! });
    expect(answer.status).toBe(200);
    expect(await answer.text()).toMatch(/<input readonly value="http[^"]+\/preferences\/[\w-]{100,}"/);
    expect(
      await scene.query(
        "select detail from audit where action = 'users.preference_link' and subject_id = $1",
        toServiceId(id),
      ),
    ).toMatchObject([{ detail: { preference_center: center } }]);
    expect((await send({ center: uuidv7() })).status).toBe(400);
    await scene.query('update profiles set email = null where id = $1', id);
    expect((await send({ center: center! })).status).toBe(400);
  });

  test("long lists on a user's page can be followed to their end", async () => {
    const email = 'lists@gmail.com';
    const id = await scene.createUser(scene.shop, 'lists', email);
    const { shop } = scene;
    const insert = (target: string, values: string, most: number) =>
      scene.query(`insert into ${target} select ${values} from generate_series(1, ${most}) as n`, shop, id);
    await insert('user_aliases', "$1::uuid, 'label ' || n, 'alias-' || n, $2::uuid, now()", 40);
    await insert('deprecated_external_ids', "$1::uuid, 'earlier-' || n, $2::uuid, now()", 30);
    await insert('push_tokens', "$1::uuid, 'app', 'token-' || n, 'device-' || n, $2::uuid, now()", 60);
    await insert('event_summaries', "$1::uuid, $2::uuid, 'counted-' || n, now(), now(), 3, now()", 26);
    for (let n = 0; n < 23; n++)
      await scene.letterIn(shop, { identifiers: [{ external_id: 'lists' }], reason: `letter-${n}-` });
    const first = `/users/${toServiceId(id)}?workspace=${shop}`;
    for (const [section, what, next, most] of [
      ['names', /(?:alias|earlier)-\d+/g, /href="([^"]+names_from=[^"]+)">and/, 70],
      ['devices', /device-\d+/g, /href="([^"]+devices_from=[^"]+)">and/, 60],
      ['counted', /counted-\d+/g, /href="([^"]+counted_from=[^"]+)">and/, 26],
      ['letters', /letter-\d+-/g, /href="([^"]+letters_before=[^"]+)">Older/, 23],
    ] as const) {
      const seen: string[] = [];
      for (let path: string | undefined = first; path !== undefined; ) {
        const { text } = await page(scene.operator, path);
        const shown = text.slice(text.indexOf(`id="${section}"`));
        seen.push(...[...shown.matchAll(what)].map(([name]) => name));
        path = next.exec(text)?.[1]?.replaceAll('&amp;', '&').split('#')[0];
      }
      expect([String(what), seen.length, new Set(seen).size]).toEqual([String(what), most, most]);
    }
  });

  test('the timeline shows subscription changes among the events, sorted by time', async () => {
    const id = await scene.createUser(scene.shop, 'changes', 'changes@gmail.com');
    const at = (minutes: number) => new Date(Date.now() - minutes * 60_000);
    for (const [name, minutes] of [
      ['before it', 30],
      ['behind it', 10],
    ] as const)
      await scene.query(
        "insert into events values ($1, $2, $3, $4, $5, 'app', '{}')",
        ...[scene.shop, uuidv7({ msecs: at(minutes).getTime() }), id, name, at(minutes)],
      );
    await scene.query(
      `insert into subscription_history (workspace_id, subject_kind, subject, subscription, to_state, changed_at, request_id)
       values ($1, 'email', 'changes@gmail.com', $2, 'unsubscribed', $3, 'request')`,
      ...[scene.shop, scene.group, at(20)],
    );
    const { text } = await page(scene.operator, `/users/${toServiceId(id)}?workspace=${scene.shop}`);
    const timeline = text.slice(text.indexOf('id="timeline"'));
    const positions = ['behind it', 'unsubscribed', 'before it'].map((one) => timeline.indexOf(one));
    expect([positions.every((route) => route > 0), [...positions].sort((one, other) => one - other)]).toEqual(
      [true, positions],
    );
  });

  test('a merged user redirects to the kept user, and an unknown user gets 404', async () => {
    const id = await scene.createUser(scene.shop, 'kept');
    const gone = newProfileId(Date.now());
    await scene.query('insert into merged_profiles values ($1, $2, $3, now())', scene.shop, gone, id);
    expect((await page(scene.operator, `/users/${toServiceId(gone)}`)).location).toContain(toServiceId(id));
    for (const other of [toServiceId(newProfileId(Date.now())), 'nobody', '%00'])
      expect([other, (await page(scene.operator, `/users/${other}`)).status]).toEqual([other, 404]);
  });

  test('personal data is masked on the page and in searches without the right to see it', async () => {
    const { visitor } = await scene.people.arrive([], {
      appGroups: [{ workspace: scene.shop, permissions: ['view_user_profile', 'dev_console'], teams: [] }],
    });
    const id = await scene.createUser(scene.shop, 'masked@gmail.com', 'masked@gmail.com');
    await scene.query(
      `insert into user_aliases values ($1, 'crm', 'secret-alias', $2, now())`,
      scene.shop,
      id,
    );
    await scene.query(
      `insert into push_tokens values ($1, 'app', 'secret-token', 'secret-device', $2, now())`,
      scene.shop,
      id,
    );
    await scene.query(
      `insert into events values ($1, $2, $3, 'seen', now(), null, '{"note": "secret-note"}')`,
      ...[scene.shop, uuidv7(), id],
    );
    await scene.letterIn(scene.shop, {
      identifiers: [{ external_id: 'masked@gmail.com' }],
      reason: 'secret-reason',
    });
    const path = `/users/${toServiceId(id)}`;
    const { status, text } = await page(visitor, path);
    expect([status, text.includes('colour'), text.includes('note')]).toEqual([200, true, true]);
    for (const secret of ['masked@gmail.com', 'Ada', 'Lovelace', 'teal', '4155552671', 'secret-'])
      expect([secret, text.includes(secret)]).toEqual([secret, false]);
    expect(text).not.toContain('/export');
    // A search must not confirm masked data.
    for (const requested of ['masked@gmail.com', '+14155552671', 'mask', 'crm:secret-alias', 'secret-alias'])
      expect([requested, await search(requested, visitor)]).toEqual([requested, []]);
    expect(await search(toServiceId(id), visitor)).toEqual([path]);
    expect((await page(visitor, '/users')).text).not.toMatch(/gmail|Lovelace|4155552671/);
    const whole = (await page(scene.operator, path)).text;
    for (const secret of [
      'masked@gmail.com',
      'Lovelace',
      'teal',
      'secret-alias',
      'secret-device',
      'secret-note',
    ])
      expect([secret, whole.includes(secret)]).toEqual([secret, true]);
  });

  test('the downloaded file has the same content as the API export', async () => {
    const answer = await scene.operator.get(`/users/${scene.user}/export`, html);
    expect(answer.headers.get('content-disposition')).toBe(`attachment; filename=${scene.user}.json`);
    expect(await answer.json()).toMatchObject({
      ...{ external_id: 'user-1', service_id: scene.user, email: 'ada@gmail.com' },
      custom_attributes: { colour: 'teal' },
    });
  });

  test("a user's page starts with the name, and shows the timeline before the attributes", async () => {
    const { text } = await page(scene.operator, `/users/${scene.user}?workspace=${scene.shop}`);
    expect(text).toContain('<h1>Ada Lovelace</h1>');
    expect(text.indexOf('id="timeline"')).toBeLessThan(text.indexOf('Custom attributes'));
    const nameless = await scene.createUser(scene.shop, 'nameless');
    await scene.query(
      'update profiles set first_name = null, last_name = null, email = null where id = $1',
      nameless,
    );
    const other = await page(scene.operator, `/users/${toServiceId(nameless)}?workspace=${scene.shop}`);
    expect(other.text).toContain('<h1>nameless</h1>');
  });

  test.each([
    ['an invalid number', { action: 'set_attribute', attribute: 'colour', type: 'number', value: 'teal' }],
    ['an identifier', { action: 'set_attribute', attribute: 'external_id', type: 'text', value: 'x' }],
    ['an unknown group', { action: 'set_subscription', subscription: uuidv7(), state: 'subscribed' }],
    ['an unknown state', { action: 'set_subscription', subscription: 'email', state: 'maybe' }],
  ])('a change to %s is rejected before the confirmation', async (_, fields) => {
    const answer = await post(scene.operator, `/users/${scene.user}?workspace=${scene.shop}`, fields);
    expect(answer.status).toBe(400);
  });

  test('the form of attributes keeps what was filled in and names the rule that the value breaks', async () => {
    const path = `/users/${scene.user}?workspace=${scene.shop}`;
    const set = (attribute: string, value: string) => ({
      action: 'set_attribute',
      attribute,
      type: 'text',
      value,
    });
    const before = await scene.query('select count(*)::int as entries from audit');
    for (const [fields, problem] of [
      [set('gender', 'somewhat'), 'gender'],
      [set('colour', 'x'.repeat(300)), '255 characters'],
      [set('external_id', 'x'), 'Use the API to change identifiers.'],
      [set('service_id', toServiceId(newProfileId(Date.now()))), 'Use the API to change identifiers.'],
    ] as const) {
      const answer = await post(scene.operator, path, { ...fields, confirm: 'yes' });
      const text = await answer.text();
      expect([fields.attribute, answer.status]).toEqual([fields.attribute, 400]);
      expect(/role="alert">([^<]*)</.exec(text)?.[1]).toContain(problem);
      expect(text).toContain(`name="value" value="${fields.value}"`);
    }
    expect(await scene.query('select count(*)::int as entries from audit')).toEqual(before);
    expect(JSON.stringify(await scene.installation.envelopes())).not.toContain('somewhat');
  });

  test('the form of subscriptions has no state at first, and shows an error at its field', async () => {
    const path = `/users/${scene.user}?workspace=${scene.shop}`;
    const { text: form } = await page(scene.operator, path);
    expect(form).toContain('<select name="state" required><option value="">Choose…</option>');
    const answer = await post(scene.operator, path, {
      ...{ action: 'set_subscription', subscription: scene.group, state: '', confirm: 'yes' },
    });
    const text = await answer.text();
    expect(answer.status).toBe(400);
    expect(text).toContain(`<option value="${scene.group}" selected>`);
    expect(text).toMatch(/aria-describedby="state-problem">.*<\/select> <strong [^>]*id="state-problem"/);
  });

  test('a user is deleted through the queue after an identifier is typed', async () => {
    const id = await scene.createUser(scene.shop, 'to-delete');
    const form = await page(scene.operator, `/users/${toServiceId(id)}/delete`);
    expect(form.text).toContain('data-word="to-delete"');
    const path = `/users/${toServiceId(id)}/delete`;
    for (const confirm of ['', 'delete', toServiceId(newProfileId(Date.now()))]) {
      const answer = await post(scene.operator, path, { confirm });
      expect([answer.status, await answer.text()]).toEqual([
        400,
        expect.stringContaining('The user was not deleted.'),
      ]);
    }
    const answer = await post(scene.operator, path, { confirm: toServiceId(id) });
    const [, requestId] = /^\/requests\/([0-9a-f-]{36})\?/.exec(answer.headers.get('location')!)!;
    const waiting = (await scene.installation.envelopes()).filter(
      ({ envelope }) => envelope.requests[0]?.request_id === requestId,
    );
    expect(waiting).toMatchObject([
      {
        envelope: {
          requests: [{ workspace_id: scene.shop }],
          objects: [{ kind: 'delete', user: { identifier: { service_id: toServiceId(id) } } }],
        },
      },
    ]);
    const { text } = await page(scene.operator, answer.headers.get('location')!);
    expect(text).toContain(`Lane ${waiting[0]!.lane}`);
    expect(text).toContain('in progress, or next');
  });

  test('an external id that ends with a blank is not the text that confirms a delete', async () => {
    const id = await scene.createUser(scene.shop, 'ends with ', 'ends@gmail.com');
    const { text } = await page(scene.operator, `/users/${toServiceId(id)}/delete`);
    expect(text).toContain('data-word="ends@gmail.com"');
  });

  test('a change needs a confirmation, is enqueued, and has an audit entry without the value', async () => {
    const id = await scene.createUser(scene.shop, 'to-change');
    const path = `/users/${toServiceId(id)}?workspace=${scene.shop}`;
    const envelopeOf = async () =>
      (await scene.installation.envelopes()).find(({ envelope }) =>
        JSON.stringify(envelope.objects).includes(toServiceId(id)),
      );
    const fields = { action: 'set_subscription', subscription: scene.group, state: 'unsubscribed' };
    const response = await post(scene.operator, path, fields);
    const question = 'Set the group to unsubscribed?';
    expect([response.status, await response.text()]).toEqual([200, expect.stringContaining(question)]);
    expect(await envelopeOf()).toBeUndefined();
    expect((await post(scene.operator, path, { ...fields, confirm: 'yes' })).status).toBe(303);
    const { objects } = (await envelopeOf())!.envelope;
    for (const part of [scene.group, 'unsubscribed']) expect(JSON.stringify(objects)).toContain(part);
    const attribute = { action: 'set_attribute', attribute: 'colour', type: 'number', value: '7' };
    expect((await post(scene.operator, path, { ...attribute, confirm: 'yes' })).status).toBe(303);
    expect(
      (await post(scene.operator, path, { action: 'remove_attribute', attribute: 'colour', confirm: 'yes' }))
        .status,
    ).toBe(303);
    const auditRows = await scene.query(
      'select action, detail from audit where subject_id = $1 order by id',
      toServiceId(id),
    );
    expect(auditRows).toMatchObject([
      { action: 'users.set_subscription', detail: { subscription: scene.group, state: 'unsubscribed' } },
      { action: 'users.set_attribute', detail: { attribute: 'colour' } },
      { action: 'users.set_attribute', detail: { attribute: 'colour', removed: true } },
    ]);
    expect(JSON.stringify(auditRows)).not.toContain('"value"');
  });

  describe('after a change', () => {
    const pathOfUser = (id: string) => `/users/${toServiceId(id)}?workspace=${scene.shop}`;
    const envelopeOf = async (id: string) =>
      (await scene.installation.envelopes()).find(({ envelope }) =>
        JSON.stringify(envelope.objects).includes(toServiceId(id)),
      );
    /** Records the envelope of the user's change, like a worker does when it has applied the change. */
    const recordApplied = async (id: string) => {
      const { id: envelopeId, envelope } = (await envelopeOf(id))!;
      await scene.query(
        'insert into ledger (envelope_id, applied_at, requests) values ($1, now(), $2)',
        ...[envelopeId, encodeTraces(envelope as unknown as Envelope)],
      );
    };
    const change = async (id: string, fields: Record<string, string>) => {
      const answer = await post(scene.operator, pathOfUser(id), { ...fields, confirm: 'yes' });
      return answer.headers.get('location')!;
    };
    const push = { action: 'set_subscription', subscription: 'push', state: 'unsubscribed' };

    test('a subscription is marked at its row and the page refreshes until it is applied', async () => {
      const id = await scene.createUser(scene.shop, 'set-push');
      const path = await change(id, push);
      const { text } = await page(scene.operator, path);
      expect(text).toContain('The change was accepted and is being applied.');
      expect(text).toContain('<main id="main" tabindex="-1" data-refresh="2">');
      expect(text).toMatch(/>subscribed<\/span> <span class="faint">unsubscribed is being applied; <a href/);
      await scene.query("update profiles set push_subscribe = 'unsubscribed' where id = $1", id);
      await recordApplied(id);
      const applied = (await page(scene.operator, path)).text;
      expect(applied).toContain('<p class="banner good" role="status">The change was applied.</p>');
      expect(applied).not.toMatch(/data-refresh|being applied/);
    });

    test('an attribute and a group without a state are marked while their change waits', async () => {
      const id = await scene.createUser(scene.shop, 'set-more');
      const attribute = { action: 'set_attribute', attribute: 'size', type: 'text', value: 'xl' };
      const { text } = await page(scene.operator, await change(id, attribute));
      expect(text).toMatch(/<code>size<\/code> is being set; <a href/);
      const group = { ...push, subscription: scene.group, state: 'opted_in' };
      const other = (await page(scene.operator, await change(id, group))).text;
      expect(other).toMatch(/>News<\/td>.*subscribed is being applied/s);
      // The change of another user is not shown.
      const [, query] = /(\?.*)/.exec(await change(id, attribute))!;
      const { text: without } = await page(scene.operator, `/users/${scene.user}${query}`);
      expect(without).not.toMatch(/being (?:set|applied)/);
    });

    test('a failed change is reported with the place of its reason', async () => {
      const id = await scene.createUser(scene.shop, 'set-failing');
      const path = await change(id, push);
      await recordApplied(id);
      const { envelope } = (await envelopeOf(id))!;
      await scene.letterIn(scene.shop, {
        requestId: envelope.requests[0]!.request_id,
        object: { ...failedEvent().object, kind: 'attributes' } as never,
      });
      const { text } = await page(scene.operator, path);
      expect(text).toContain('The change failed.');
      expect(text).not.toContain('data-refresh');
    });

    test('a change that waits for longer than 20 s is still marked, and no longer refreshes the page', async () => {
      const id = await scene.createUser(scene.shop, 'set-slowly');
      const requestId = floorOf(Date.now() - 30_000);
      await scene.query(
        `insert into audit (id, company_id, workspace_id, actor_kind, actor_name, via, action, subject_kind, subject_id, detail)
         values (uuid_v7_floor(now() - interval '29 seconds'), $1, $2, 'operator', 'admin', 'console',
           'users.set_subscription', 'user', $3, $4)`,
        ...[DEFAULT_COMPANY, scene.shop, toServiceId(id)],
        { request_id: requestId, subscription: 'push', state: 'unsubscribed' },
      );
      const request = {
        request_id: requestId,
        workspace_id: scene.shop,
        accepted_at: new Date().toISOString(),
      };
      const object = { kind: 'attributes', id: floorOf(Date.now() - 29_000), index: 0 } as AcceptedObject;
      const entries = pack([{ request, objects: [object], bytes: 100 }], 1, 100);
      await scene.installation.producer.add(
        entries.map((entry) => ({ ...entry, id: floorOf(Date.now() - 29_000) })),
      );
      const { text } = await page(scene.operator, `${pathOfUser(id)}&change=${requestId}`);
      expect(text).toContain('unsubscribed is being applied');
      expect(text).toContain('Reload the page</a> to see it.');
      expect(text).not.toContain('data-refresh');
    });

    test('the form waits until the change is applied', async () => {
      const id = await scene.createUser(scene.shop, 'set-quickly');
      let isApplied = false;
      const answer = change(id, push).then((path) => ({ path, isApplied }));
      await waitUntil(() => envelopeOf(id), { what: 'the change in its lane' });
      isApplied = true;
      await recordApplied(id);
      const { path, isApplied: wasApplied } = await answer;
      expect(wasApplied).toBe(true);
      expect((await page(scene.operator, path)).text).toContain('The change was applied.');
    });

    test('the timeline names the author of a change, links its request and starts with the shown state', async () => {
      const email = 'authored@gmail.com';
      const id = await scene.createUser(scene.shop, 'authored', email);
      const path = await change(id, { ...push, subscription: 'email' });
      const requestId = new URL(path, 'http://x').searchParams.get('change')!;
      const state = { workspaceId: scene.shop, subjectKind: 'email' as const, subject: email };
      const set = { ...state, subscription: '', how: 'set' as const };
      await inTransaction(scene.installation.database.pool, (tx) =>
        recordStateChanges(
          tx,
          [
            { ...set, state: 'unsubscribed', requestId },
            { ...set, state: 'opted_in', requestId: 'not-of-the-console' },
          ],
          new Date().toISOString(),
        ),
      );
      const { text } = await page(scene.operator, `${pathOfUser(id)}&kind=subscriptions`);
      expect(text).toMatch(
        new RegExp(
          `subscribed → unsubscribed .*href="/requests/${requestId}[^>]*>request</a> <span class="faint">by admin in the console</span>`,
        ),
      );
      expect(text).toMatch(
        /unsubscribed → opted_in .*<span class="faint" title="not-of-the-console">request/,
      );
      expect(text.match(/by admin in the console/g)).toHaveLength(1);
    });

    test('the profile and the timeline show one moment', async () => {
      const id = await scene.createUser(scene.shop, 'one-moment');
      const { pool } = scene.installation.database;
      const holder = await pool.connect();
      try {
        await holder.query('begin');
        await holder.query('lock table named_failures in access exclusive mode');
        const reading = page(scene.operator, pathOfUser(id));
        await waitUntil(
          async () =>
            (
              await scene.query(
                "select 1 from pg_locks where relation = 'named_failures'::regclass and not granted",
              )
            ).length > 0,
          { what: 'the page to wait for the lock' },
        );
        await scene.query(
          'update profiles set attribute_changes = $1, custom_attributes = $2 where id = $3',
          ...[
            `${changeStamp(floorOf(Date.now()), floorOf(Date.now()))}later-plan${END}`,
            { plan: 'pro' },
            id,
          ],
        );
        await holder.query('commit');
        const { status, text } = await reading;
        expect(status).toBe(200);
        expect(text).toContain('teal');
        expect(text).not.toContain('later-plan');
      } finally {
        holder.release();
      }
    });
  });
});
