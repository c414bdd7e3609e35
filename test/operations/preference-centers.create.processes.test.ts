import { describe, expect, test } from 'vitest';
import { eitherBackend } from '../guarantees/fleet.ts';
import { base, expectRefusal, htmls, time, unknown, useCenters } from './preference-centers.ts';

const uuid = expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);

describe.each(eitherBackend)('creating preference centers, with the queue in %s', (backend) => {
  const centers = useCenters(backend);
  const { api, create, view, created } = centers;

  describe('create', () => {
    test('returns the id, the tag of its link and the times; title and state have defaults', async () => {
      const { status, body } = await create({ name: 'First_1-x', ...htmls });
      expect({ status, body }).toEqual({
        status: 201,
        body: {
          preference_center_api_id: uuid,
          liquid_tag: '{{preference_center.${First_1-x}}}',
          created_at: time,
          updated_at: body.created_at,
          message: 'success',
        },
      });
      expect(await view(body.preference_center_api_id)).toMatchObject({
        status: 200,
        body: {
          name: 'First_1-x',
          preference_center_api_id: body.preference_center_api_id,
          created_at: body.created_at,
          updated_at: body.updated_at,
          preference_center_title: 'Preference Center',
          ...htmls,
          redirect_page_html: null,
          preference_center_options: {},
          state: 'active',
        },
      });
    });

    test('keeps title, state and options', async () => {
      const options = {
        'meta-viewport-content': 'width=device-width',
        'links-tags': [
          { rel: 'icon', type: 'image/png', sizes: '16x16', href: 'https://example.com/icon.png' },
        ],
      };
      const id = await created({ name: 'full', preference_center_title: 'Title', state: 'draft', options });
      expect((await view(id)).body).toMatchObject({
        preference_center_title: 'Title',
        state: 'draft',
        preference_center_options: options,
      });
    });

    test('checks deeply nested options like any others', async () => {
      const deep = JSON.parse('['.repeat(4000) + ']'.repeat(4000));
      expect((await create({ name: 'deep', ...htmls, options: { deep } })).status).toBe(201);
    });

    test.each(['name', ...Object.keys(htmls)])('%s is required', async (field) => {
      const { [field]: _, ...rest } = { name: 'lacking', ...htmls } as Record<string, string>;
      expectRefusal(await create(rest), `'${field}' is required`);
    });

    test.each([
      [{ name: 'two words' }, /^'name' is not valid: it must be 1 to 255 letters, digits, - and _/],
      [{ name: '' }, /^'name'/],
      [{ name: 'Ünïcode' }, /^'name'/],
      [{ name: 'x'.repeat(256) }, /^'name'/],
      [{ name: 7 }, /^'name'/],
      [{ state: 'archived' }, /^'state' is not valid: it must be active or draft$/],
      [{ preference_center_title: 1 }, /^'preference_center_title' is not valid: it must be a string/],
      [
        { preference_center_page_html: '' },
        /^'preference_center_page_html' is not valid: it must be a string/,
      ],
      [{ confirmation_page_html: 'x'.repeat(262_145) }, /^'confirmation_page_html' is not valid/],
      [{ options: 'wide' }, /^'options' is not valid: it must be an object/],
      [{ options: { 'meta-viewport-content': 1 } }, /^'options\.meta-viewport-content' is not valid/],
      [{ options: { 'links-tags': {} } }, /^'options\.links-tags' is not valid: it must be an array/],
      [{ options: { 'links-tags': [{ rel: 'icon' }] } }, /^'options\.links-tags\.0\.href' is required$/],
      [
        { options: { 'links-tags': [{ rel: 'stylesheet', href: 'x' }] } },
        /^'options\.links-tags\.0\.rel' is not valid/,
      ],
      [
        { preference_center_title: 'a\u0000b' },
        /^'preference_center_title' is not valid: it must not hold U\+0000/,
      ],
      [
        { preference_center_page_html: '\ud800' },
        /^'preference_center_page_html' is not valid: it must not hold/,
      ],
    ])('rejects %j', async (change, message) => {
      expectRefusal(await create({ name: 'refused', ...htmls, ...change }), message);
    });

    test('creates a name once per workspace, also for simultaneous requests', async () => {
      const answers = await Promise.all(
        Array.from({ length: 8 }, () => create({ name: 'wanted', ...htmls })),
      );
      expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
      for (const answer of answers.filter(({ status }) => status !== 201)) {
        expectRefusal(answer, 'A preference center with this name already exists: wanted', 'nameTaken');
      }
      const other = await centers.scene.otherWorkspace();
      expect(await api('POST', base, { name: 'wanted', ...htmls }, other.key)).toMatchObject({
        status: 201,
      });
    });
  });

  describe('templates are rendered before they are saved', () => {
    const page = (html: string) => create({ name: 'tried', ...htmls, preference_center_page_html: html });

    test('a syntax error is reported with its field and line', async () => {
      expectRefusal(
        await page('a\nb\n{% if x %}'),
        /^'preference_center_page_html' is not valid: line 3: tag .* not closed$/,
      );
      const answer = await create({ name: 'tried', ...htmls, confirmation_page_html: '\n{{ x | shout }}' });
      expectRefusal(answer, "'confirmation_page_html' is not valid: line 2: undefined filter: shout");
    });

    test('a loop of a billion and a huge page are rejected with a reason', async () => {
      expectRefusal(
        await page('{% for i in (1..1000000000) %}x{% endfor %}'),
        /line 1: it makes more values than fit/,
      );
      expectRefusal(
        await page(`{% for i in (1..9999) %}${'x'.repeat(999)}{% endfor %}`),
        /more than 1,048,576 characters/,
      );
      const loops = '{% for a in (1..9999) %}{% for b in (1..9999) %}{{ b }}{% endfor %}{% endfor %}';
      expectRefusal(
        await page(`{% capture x %}${loops}{% endcapture %}`),
        /takes longer than|time or memory/,
      );
    });

    test('a group that the workspace does not have is rejected by its id', async () => {
      const other = await centers.scene.otherWorkspace();
      const { rows } = await centers.scene.pool.query(
        `insert into subscription_groups (id, workspace_id, name, channel) values (gen_random_uuid(), $1, 'x', 'email') returning id`,
        [other.id],
      );
      for (const id of [unknown, rows[0].id]) {
        const message = `'preference_center_page_html' is not valid: there is no subscription group ${id}`;
        expectRefusal(await page(`{% form_field_name :subscription_group ${id} %}`), message);
        expectRefusal(await page(`{{subscribed_state.\${${id}}}}`), message);
      }
    });

    test('a page whose choices would not be submitted is rejected, with the reason', async () => {
      const { news } = centers.scene.groups;
      const box = `<input type="checkbox" name="{% form_field_name :subscription_group ${news} %}" value="subscribed" form="later">`;
      const lost = `'preference_center_page_html' is not valid: the field subscription_group_${news} is outside of every form`;
      expectRefusal(await page(box), new RegExp(`^${lost}`));
      expectRefusal(
        await page(`${box}<form id="later" action="{{preference_center_submit_url}}"></form>`),
        /must have method="post"$/,
      );
      const joined = `${box}<form id="later" method="post" action="{{preference_center_submit_url}}"></form>`;
      expect((await create({ name: 'joined', ...htmls, preference_center_page_html: joined })).status).toBe(
        201,
      );
    });

    test('a rejected preference center is not stored', async () => {
      const { body } = await api('GET', `${base}/list`);
      expect(body.preference_centers.map(({ name }: { name: string }) => name)).not.toContain('tried');
    });
  });
});
