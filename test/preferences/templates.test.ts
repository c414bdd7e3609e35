import { afterAll, describe, expect, test } from 'vitest';
import { MAX_PAGE } from '../../src/preferences/page.ts';
import { createRenderer, RendererBusy } from '../../src/preferences/renderer.ts';
import { sampleView, type View } from '../../src/preferences/submission.ts';
import { TemplateError, TemplateTooCostly } from '../../src/preferences/template.ts';
import { threadTime } from '../setup/thread-time.ts';
import { waitUntil } from '../setup/wait-until.ts';

const NEWS = '019c13ec-a2e2-7000-8000-000000000001';
const OFFERS = '019c13ec-a2e2-7000-8000-000000000002';

const renderer = createRenderer();
afterAll(() => renderer.stop());

const view: View = {
  attributes: { email_address: 'ada@example.com', first_name: 'Ada' },
  customAttributes: { plan: 'gold', pets: ['cat', 'dog'], 'two words': 'yes' },
  emailGlobal: 'opted_in',
  groups: { [NEWS]: 'subscribed', [OFFERS]: 'unsubscribed' },
  submitUrl: 'https://penstock.example/preferences/token',
};

const render = async (template: string, change: Partial<View> = {}) =>
  (await renderer.render('shop', { template, view: { ...view, ...change } })).html;

describe('the tags of a template', () => {
  test.each([
    ['{{subscribed_state.${email_global}}}', 'opted_in'],
    [`{{subscribed_state.\${${NEWS}}}}`, 'subscribed'],
    [`{{ subscribed_state.\${${OFFERS.toUpperCase()}} }}`, 'unsubscribed'],
    [`{% if subscribed_state.\${${NEWS}} == 'subscribed' %}checked{% endif %}`, 'checked'],
    ['{% form_field_name :email_global_state %}', 'email_global_state'],
    [`{% form_field_name :subscription_group ${NEWS} %}`, `subscription_group_${NEWS}`],
    ['{{preference_center_submit_url}}', 'https://penstock.example/preferences/token'],
    ['{{${email_address}}}', 'ada@example.com'],
    ['{{ ${first_name} | upcase }}', 'ADA'],
    ['{{${last_name} | default: "friend"}}', 'friend'],
    ['{{custom_attribute.${plan}}}', 'gold'],
    ['{{custom_attribute.${two words}}}', 'yes'],
    ['{% for pet in custom_attribute.${pets} %}{{ pet }} {% endfor %}', 'cat dog '],
    ['{{${email_address}}}{{${first_name}}}', 'ada@example.comAda'],
  ])('%s', async (template, html) => {
    expect(await render(template)).toBe(html);
  });

  test('a ${…} outside of Liquid, in quotes or between raw and endraw is text', async () => {
    expect(await render('a ${b} {c} {{ "${d}" }} {% raw %}{{${e}}}{% endraw %}{% # ${f} %}')).toBe(
      'a ${b} {c} ${d} {{${e}}}',
    );
  });

  test('returns the groups that a template names', async () => {
    const template = `{% form_field_name :subscription_group ${NEWS} %}{{subscribed_state.\${${OFFERS}}}}`;
    const { groups } = await renderer.render('shop', { template, view });
    expect(groups.sort()).toEqual([NEWS, OFFERS]);
    expect((await renderer.render('shop', { template: 'none', view })).groups).toEqual([]);
  });
});

describe('attribute values are shown as text', () => {
  const evil = `<script>alert(1)</script>"'&`;
  const harmless = '&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;';

  test.each([
    '{{${first_name}}}',
    '{{custom_attribute.${plan}}}',
    '{% echo ${first_name} %}',
    '{% liquid echo ${first_name} %}',
    '{% cycle ${first_name}, "b" %}',
    '{% assign name = ${first_name} %}{{ name }}',
    '{{${first_name} | append: ""}}',
    '{{custom_attribute.${list} | join: ""}}',
  ])('%s', async (template) => {
    const html = await render(template, {
      attributes: { first_name: evil },
      customAttributes: { plan: evil, list: [evil] },
    });
    expect(html).toBe(harmless);
  });

  test('also when they are captured', async () => {
    const html = await render('{% capture name %}{{${first_name}}}{% endcapture %}{{ name }}', {
      attributes: { first_name: evil },
    });
    expect(html).not.toMatch(/[<>"']/);
  });

  test('and Liquid in them is not run', async () => {
    const html = await render('{{${first_name}}}', { attributes: { first_name: '{{${email_address}}}' } });
    expect(html).toBe('{{${email_address}}}');
  });

  test('and the filter that would disable this is missing', async () => {
    await expect(render('{{${first_name} | raw}}')).rejects.toThrow('line 1: undefined filter: raw');
  });

  test('the template cannot reach the process', async () => {
    const html = await render(
      '{{ constructor }}{{ attributes.constructor }}{{ subscribed_state.__proto__ }}{{ process }}{{ globalThis }}',
    );
    expect(html).toBe('');
    for (const tag of ['include', 'render', 'layout']) {
      await expect(render(`{% ${tag} '/etc/passwd' %}`)).rejects.toThrow(`tag "${tag}" not found`);
    }
  });
});

describe('an error is reported with its line', () => {
  test.each([
    ['a\n\n{% if x %}', 'line 3: tag {% if x %} not closed'],
    ['a\n{{ x', 'line 2: output "{{ x" not closed'],
    ['a\n{{ x | shout }}', 'line 2: undefined filter: shout'],
    ['a\n{% fly %}', 'line 2: tag "fly" not found'],
    ['a\nb {{${emial}}}', "line 2: there is no user attribute '${emial}'"],
    ['{{${email_address', "line 1: '${' is not closed"],
    ['\n{{subscribed_state.${news}}}', "line 2: 'subscribed_state.${news}' is not valid"],
    ['\n{{user.${name}}}', "line 2: 'user.${name}' is not valid"],
    ['\n{% form_field_name :newsletter %}', "line 2: 'form_field_name' takes"],
    ['\n{% form_field_name :subscription_group news %}', "line 2: 'form_field_name' takes"],
    [`{% form_field_name :subscription_group ${NEWS} ${NEWS} %}`, "line 1: 'form_field_name' takes"],
  ])('%j', async (template, problem) => {
    const error = await render(template).then(
      () => undefined,
      (reason: Error) => reason,
    );
    expect(error).toBeInstanceOf(TemplateError);
    expect(error!.message).toContain(problem);
  });
});

describe('a template that costs too much is stopped', () => {
  test.each([
    ['a loop of a billion', '{% for i in (1..1000000000) %}x{% endfor %}'],
    ['loops in loops', nested(4)],
    ['a table of a billion', '{% tablerow i in (1..1000000000) %}{% endtablerow %}'],
    [
      'a text that doubles',
      '{% assign s = "x" %}{% for i in (1..99) %}{% assign s = s | append: s %}{% endfor %}',
    ],
    ['a huge page', `{% for i in (1..9999) %}${'x'.repeat(999)}{% endfor %}`],
    ['a width of a billion', '{{ "2026-01-01" | date: "%1000000000Y" }}'],
  ])('%s, without blocking the event loop', async (_what, template) => {
    const { longest, error } = await watched(() => render(template));
    expect(error).toBeInstanceOf(TemplateTooCostly);
    expect(longest).toBeLessThan(500);
  });

  /** The error for a rendering process that has ended, for any reason. */
  const gone = 'it takes more time or memory than a page may';

  test('a template that Liquid cannot stop is ended with its process, and the next one is rendered', async () => {
    // One output; Liquid checks its time limit only before outputs.
    const sorts = ' | sort_natural | sort'.repeat(11);
    const own = createRenderer({ maxProcesses: 1, deadline: 1000 });
    const render = (template: string) => own.render('shop', { template, view });
    const { longest, error } = await watched(() => render(`{{ (1..200000)${sorts} | size }}`));
    expect(error).toBeInstanceOf(TemplateTooCostly);
    expect((error as Error).message).toBe(gone);
    expect(longest).toBeLessThan(500);
    expect((await render('{{${first_name}}}')).html).toBe('Ada');
    await own.stop();
  });

  test('a template that exceeds the memory of a rendering process ends only that process', async () => {
    for (let times = 0; times < 3; times++) {
      const sorts = ' | sort_natural'.repeat(3);
      const { longest, error } = await watched(() => render(`{{ (1..1200000)${sorts} | size }}`));
      expect(error).toBeInstanceOf(TemplateTooCostly);
      expect((error as Error).message).toBe(gone);
      expect(longest).toBeLessThan(500);
    }
    expect(await render('{{${first_name}}}')).toBe('Ada');
  });

  test('a page may be large, up to a limit', async () => {
    const text = 'x'.repeat(1024);
    const loop = (times: number) => `{% for i in (1..${times}) %}${text}{% endfor %}`;
    // A rendering may take 500 ms, which is too little on a busy machine.
    const inTime = (times: number) =>
      waitUntil(
        async () => {
          const rendered = await render(loop(times)).catch((error: Error) => error.message);
          return rendered.includes('it takes longer') ? undefined : rendered;
        },
        { what: 'a rendering in time' },
      );
    expect(await inTime(MAX_PAGE / 1024)).toHaveLength(MAX_PAGE);
    expect(await inTime(MAX_PAGE / 1024 + 1)).toContain('1,048,576 characters');
  });

  test('pages beyond the waiting limit are rejected at once', async () => {
    const own = createRenderer({ maxProcesses: 1, deadline: 30_000, patience: 60_000 });
    const renderings = Array.from({ length: 60 }, () =>
      own.render('shop', { template: 'x', view: sampleView }),
    );
    const ends = await Promise.allSettled(renderings);
    const refused = ends.filter(({ status }) => status === 'rejected') as PromiseRejectedResult[];
    expect(refused.length).toBeGreaterThan(0);
    expect(ends.length - refused.length).toBeGreaterThan(10);
    for (const { reason } of refused) expect(reason).toBeInstanceOf(RendererBusy);
    await own.stop();
  });

  test('a page waits for others a bounded time, however long they take', async () => {
    const own = createRenderer({ maxProcesses: 1, deadline: 10_000, patience: 300 });
    const read = (template: string) => own.render('shop', { template, view });
    expect((await read('x')).html).toBe('x');
    const slow = read(`{{ (1..200000)${' | sort_natural | sort'.repeat(11)} | size }}`).catch(() => {});
    const from = performance.now();
    const stuck = await read('{{${first_name}}}').catch((reason: unknown) => reason);
    expect(stuck).toBeInstanceOf(RendererBusy);
    expect(performance.now() - from).toBeGreaterThan(290);
    expect(performance.now() - from).toBeLessThan(2000);
    await own.stop();
    await slow;
  });
});

function nested(depth: number): string {
  return depth === 0 ? 'x' : `{% for i${depth} in (1..10000) %}${nested(depth - 1)}{% endfor %}`;
}

/**
 * Returns the error of the work, and the longest time between two turns of this thread meanwhile, in
 * milliseconds.
 */
async function watched(work: () => Promise<unknown>): Promise<{ longest: number; error: unknown }> {
  let longest = 0;
  let last = threadTime();
  const timer = setInterval(() => {
    longest = Math.max(longest, threadTime() - last);
    last = threadTime();
  }, 10);
  const error = await work().then(
    () => undefined,
    (reason: unknown) => reason,
  );
  clearInterval(timer);
  return { longest, error };
}
