import { describe, expect, test } from 'vitest';
import { readLink } from '../../src/preferences/link.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { base, expectRefusal, htmls, time, unknown, useCenters } from './preference-centers.ts';

describe.each(eitherBackend)('preference centers, with the queue in %s', (backend) => {
  const centers = useCenters(backend);
  const { api, view, created } = centers;

  describe.each(['PUT', 'POST'])('update by %s', (method) => {
    const update = (id: string, body: object) => api(method, `${base}/${id}`, body);

    test('replaces both templates and the given fields, and keeps the name and all others', async () => {
      const name = `updated-by-${method}`;
      const id = await created({
        name,
        preference_center_title: 'Old',
        options: { 'meta-viewport-content': 'a' },
      });
      const before = (await view(id)).body;
      const next = { preference_center_page_html: 'new page', confirmation_page_html: 'new saved' };
      const answer = await update(id.toUpperCase(), { ...next, name: 'another name', state: 'draft' });
      expect(answer).toMatchObject({
        status: 200,
        body: {
          preference_center_api_id: id,
          created_at: before.created_at,
          updated_at: time,
          message: 'success',
        },
      });
      expect((await view(id)).body).toEqual({
        ...before,
        ...next,
        state: 'draft',
        updated_at: answer.body.updated_at,
      });
      expect(answer.body.updated_at > before.updated_at).toBe(true);
      await update(id, { ...htmls, preference_center_title: 'New', options: null, state: null });
      expect((await view(id)).body).toMatchObject({
        preference_center_title: 'New',
        preference_center_options: { 'meta-viewport-content': 'a' },
        state: 'draft',
      });
    });

    test.each(Object.keys(htmls))('%s is required', async (field) => {
      const { [field]: _, ...rest } = htmls as Record<string, string>;
      expectRefusal(await update(unknown, rest), `'${field}' is required`);
    });

    test('renders the templates, and leaves the center unchanged when one of them is invalid', async () => {
      const id = await created({ name: `kept-by-${method}` });
      const before = (await view(id)).body;
      expectRefusal(await update(id, { ...htmls, preference_center_page_html: '{{' }), /line 1/);
      expect((await view(id)).body).toEqual(before);
    });
  });

  describe('an id that does not exist', () => {
    const other = 'not-an-id';

    test('is 404 for view, PUT and link', async () => {
      for (const id of [unknown, other]) {
        expectRefusal(await view(id), 'Preference center not found', 'unknownPreferenceCenter');
        expectRefusal(
          await api('PUT', `${base}/${id}`, htmls),
          'Preference center not found',
          'unknownPreferenceCenter',
        );
        expectRefusal(
          await api('GET', `${base}/${id}/url/ada`),
          'Preference center not found',
          'unknownPreferenceCenter',
        );
      }
    });

    test('is created by POST once, under the rules of a new center', async () => {
      const id = '019c13ec-a2e2-7000-8000-00000000beef';
      const save = (body: object) => api('POST', `${base}/${id}`, { ...htmls, ...body });
      expectRefusal(await save({}), "'name' is required");
      expectRefusal(await save({ name: 'two words' }), /^'name' is not valid/);
      await created({ name: 'wanted' });
      expectRefusal(await save({ name: 'wanted' }), /already exists: wanted$/, 'nameTaken');
      const answers = await Promise.all(Array.from({ length: 6 }, () => save({ name: 'own-id' })));
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 200, 201]);
      for (const { body } of answers) expect(body.preference_center_api_id).toBe(id);
      expect((await view(id)).body.name).toBe('own-id');
      expectRefusal(
        await api('POST', `${base}/${other}`, { name: 'x', ...htmls }),
        "'preferenceCenterExternalId' is not valid: it must be a UUID",
      );
    });

    test('a center of another workspace does not exist', async () => {
      const id = await created({ name: 'ours' });
      const { key } = await centers.scene.otherWorkspace();
      expectRefusal(
        await api('GET', `${base}/${id}`, undefined, key),
        'Preference center not found',
        'unknownPreferenceCenter',
      );
      expectRefusal(
        await api('PUT', `${base}/${id}`, htmls, key),
        'Preference center not found',
        'unknownPreferenceCenter',
      );
      expect((await api('GET', `${base}/list`, undefined, key)).body).toEqual({ preference_centers: [] });
    });
  });

  test('create and both forms of update share 10 requests a minute, then 429 with Retry-After', async () => {
    const { id, key } = await centers.scene.otherWorkspace();
    // The default number of requests, but per hour: on a busy machine a minute may pass before all are
    // answered.
    await centers.scene.pool.query(
      "insert into rate_limits (workspace_id, bucket, requests, window_seconds) values ($1, 'preference_center.write', 10, 3600)",
      [id],
    );
    const first = await api('POST', base, { name: 'limited', ...htmls }, key);
    const path = `${base}/${first.body.preference_center_api_id}`;
    const answers = [first];
    for (let request = 1; request < 10; request++) {
      answers.push(await api(request % 2 === 0 ? 'PUT' : 'POST', path, htmls, key));
    }
    expect(answers.map(({ status }) => status)).toEqual([201, ...Array(9).fill(200)]);
    expect(answers.at(-1)!.headers.get('x-ratelimit-remaining')).toBe('0');
    for (const [method, where] of [
      ['POST', base],
      ['PUT', path],
      ['POST', path],
    ] as const) {
      const refused = await api(method, where, { name: 'more', ...htmls }, key);
      expectRefusal(refused, 'Rate Limited', 'rateLimited');
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    }
    expect((await api('GET', path, undefined, key)).status).toBe(200);
  });

  test('the list has name, id and times of all centers, also drafts, oldest first', async () => {
    const { key } = await centers.scene.otherWorkspace();
    const ids: string[] = [];
    for (const [name, state] of [
      ['b', 'active'],
      ['a', 'draft'],
      ['c', 'active'],
    ]) {
      const { body } = await api('POST', base, { name, state, ...htmls }, key);
      ids.push(body.preference_center_api_id);
    }
    const { status, body } = await api('GET', `${base}/list`, undefined, key);
    expect(status).toBe(200);
    expect(body).toEqual({
      preference_centers: ['b', 'a', 'c'].map((name, index) => ({
        name,
        preference_center_api_id: ids[index],
        created_at: time,
        updated_at: time,
      })),
    });
  });

  describe('the link of a user', () => {
    const link = (id: string, user: string) => api('GET', `${base}/${id}/url/${encodeURIComponent(user)}`);

    test('belongs to the user with the external id, also a renamed or unusual one', async () => {
      const id = await created({ name: 'linked' });
      for (const user of ['ada', 'a/b?c=d', '%', 'é 😀']) {
        const profileId = await centers.scene.addUser(
          user,
          `${Buffer.from(user).toString('hex')}@example.com`,
        );
        const { status, body } = await link(id, user);
        expect(status).toBe(200);
        const url = new URL(body.preference_center_url);
        expect(url.origin).toBe(`http://127.0.0.1:${centers.scene.port}`);
        expect(readLink(url.pathname.replace('/preferences/', ''))).toMatchObject({
          ...{ workspaceId: centers.scene.workspace.id, centerId: id, profileId },
        });
      }
      await centers.scene.pool.query(
        `insert into deprecated_external_ids
       select workspace_id, 'old-ada', id, now() from profiles where external_id = 'ada'`,
      );
      expect((await link(id, 'old-ada')).status).toBe(200);
    });

    test('is created by a POST as by a GET, with and without a body', async () => {
      const id = await created({ name: 'posted' });
      await centers.scene.addUser('poster', 'poster@example.com');
      for (const body of [undefined, {}]) {
        const posted = await api('POST', `${base}/${id}/url/poster`, body);
        expect(posted).toMatchObject({
          status: 200,
          body: { preference_center_url: expect.stringContaining('/preferences/') },
        });
      }
      expectRefusal(await api('POST', `${base}/${id}/url/nobody`), 'User not found', 'unknownUser');
    });

    test('is 404 for an unknown user, and 400 for a user without email address or a draft', async () => {
      const id = await created({ name: 'not-linked' });
      await centers.scene.addUser('silent', null);
      expectRefusal(await link(id, 'nobody'), 'User not found', 'unknownUser');
      expectRefusal(await link(id, 'a\0b'), 'User not found', 'unknownUser');
      expectRefusal(await link(id, 'silent'), 'The user has no email address', 'userWithoutEmail');
      const draft = await created({ name: 'draft', state: 'draft' });
      expectRefusal(
        await link(draft, 'silent'),
        'The preference center is a draft. Set its state to active before creating links.',
        'draftPreferenceCenter',
      );
    });
  });
});
