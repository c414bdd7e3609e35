import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { examples, languages } from '../../src/docs/examples.ts';
import { readGuides, renderGuide } from '../../src/docs/guides.ts';
import { createSearch, createSite } from '../../src/docs/site.ts';
import { openApiDocument } from '../../src/edge/openapi.ts';
import { allOperations } from '../../src/operations/index.ts';
import { packageRoot } from '../../src/platform/files.ts';

const operations = allOperations('service_id');
const document = JSON.parse(JSON.stringify(openApiDocument(operations)));
const site = createSite(document);
const textOf = (address: string) => site.page(address)!.toString();

/** Returns every page that links lead to, starting from the first page. */
function crawl(): Map<string, string> {
  const pages = new Map([['', textOf('')]]);
  for (const [, text] of pages)
    for (const [, address] of text.matchAll(/href="\/docs(\/(?:(?:guides|reference)\/[^"#]+|calculator))/g))
      if (!pages.has(address!)) pages.set(address!, site.page(address!)?.toString() ?? '');
  return pages;
}
const pages = crawl();

const MAX_BYTES = 160_000;

describe('the pages of the documentation', () => {
  test('exist for each operation and each guide, and links lead to all of them', () => {
    const paths = [
      '',
      ...readGuides().map(({ name }) => `/guides/${name}`),
      ...operations.map(({ id }) => `/reference/${id}`),
      '/calculator',
    ];
    expect([...pages.keys()].sort()).toEqual(paths.sort());
    expect([...pages].filter(([, text]) => text === '').map(([address]) => address)).toEqual([]);
  });

  test('every guide is on a shelf, except the index and the pages for contributors', () => {
    const shown = readGuides().map(({ file }) => file);
    const all = readdirSync(path.join(packageRoot, 'docs')).filter((name) => name.endsWith('.md'));
    const left = all.filter((name) => !shown.includes(`docs/${name}`));
    expect(left).toEqual(['README.md', 'releasing.md', 'testing.md']);
  });

  test('every link has a target: pages, anchors, pictures, styles and scripts exist', () => {
    const broken = [...pages].flatMap(([address, text]) =>
      [...text.matchAll(/(?:href|src)="([^"]*)"/g)]
        .map(([, link]) => link!)
        .filter((link) => !isThere(link, address))
        .map((link) => `${address} leads to ${link}`),
    );
    expect(broken).toEqual([]);
  });

  test('the first page names each group of operations in words', () => {
    const headings = [...textOf('').matchAll(/<h3>(.*?)<\/h3>/g)].map(([, heading]) => heading!);
    expect(headings).toContain('Users');
    expect(headings.filter((heading) => /^[a-z_]+$/.test(heading))).toEqual([]);
  });

  test('a picture of docs/pictures is shown in the guide that contains it', () => {
    expect(pages.get('/guides/concepts')).toContain('<img src="/docs/pictures/concepts.svg" alt="A request');
    expect(site.picture('concepts.svg')).toMatch(/docs\/pictures\/concepts\.svg$/);
  });

  test('every link of a page has a text, those around an operation included', () => {
    const wordless = [...pages].flatMap(([address, text]) =>
      [...text.matchAll(/<a [^>]*>\s*(?=<\/a>|<a )/g)].map(([link]) => `${address}: ${link}`),
    );
    expect(wordless).toEqual([]);
  });

  test('pictures, styles and scripts are local; external addresses are only links', () => {
    for (const [address, text] of pages) {
      const loaded = [...text.matchAll(/<(?:img|script|link|iframe)[^>]*?(?:src|href)="([^"]*)"/g)];
      for (const [, link] of loaded)
        expect([address, link]).toEqual([address, expect.stringMatching(/^\/docs\/|^data:,$/)]);
      expect([address, /<script(?! src=)|<style|\son\w+=|\sstyle=/.test(text)]).toEqual([address, false]);
    }
  });

  test('each has less than 160 KB, with styles and scripts', () => {
    const assets = [...textOf('').matchAll(/\/docs\/assets\/(\w+)\/([\w.]+)/g)].map(
      ([, version, name]) => site.asset(version!, name!)!.length,
    );
    const own = assets.reduce((sum, size) => sum + size, 0);
    const large = [...pages].filter(([, text]) => Buffer.byteLength(text) + own > MAX_BYTES);
    expect(large.map(([address, text]) => [address, text.length + own])).toEqual([]);
  });

  test('are built once', () => {
    expect(site.page('/guides/api')).toEqual(site.page('/guides/api'));
    expect(site.page('/guides/../../package.json')).toBeUndefined();
    expect(site.page('/guides/API')).toBeUndefined();
    expect(site.asset('0', 'docs.css')).toBeUndefined();
    expect(site.picture('../openapi.json')).toBeUndefined();
  });
});

/** Checks whether a page, file or picture is at the address, and has the anchor. */
function isThere(link: string, from: string): boolean {
  if (/^https?:|^data:,$|^\/openapi\.json$/.test(link)) return true;
  const [to, anchor] = link.split('#') as [string, string?];
  const [, version, name] = /^\/docs\/assets\/(\w+)\/([\w.]+)$/.exec(to) ?? [];
  if (version) return site.asset(version, name!) !== undefined;
  if (to.startsWith('/docs/pictures/')) return site.picture(to.slice('/docs/pictures/'.length)) !== undefined;
  const text = pages.get(to === '' ? from : to.replace(/^\/docs/, ''));
  return text !== undefined && (anchor === undefined || text.includes(` id="${anchor}"`));
}

describe('the page of an operation', () => {
  test.each(operations)('$id: its path, permission, parameters, members, statuses and errors', ({ id }) => {
    const text = pages.get(`/reference/${id}`)!;
    const plain = text.replace(/<wbr>/g, '').replace(/<[^>]+>/g, ' ');
    const [route, methods] = Object.entries<Record<string, never>>(document.paths).find(([, all]) =>
      Object.values<{ operationId: string }>(all).some(({ operationId }) => operationId === id),
    )!;
    // biome-ignore lint/suspicious/noExplicitAny: a document that is read
    const described = Object.values<any>(methods).find(({ operationId }) => operationId === id);
    expect(plain).toContain(route);
    for (const { name } of described.parameters ?? []) expect(text).toContain(`<code>${name}</code>`);
    for (const status of Object.keys(described.responses))
      expect(text).toMatch(new RegExp(`badge \\w+">${status}<`));
    const body = Object.values<{ schema: unknown }>(described.requestBody?.content ?? {})[0]?.schema;
    for (const name of namesIn(body)) expect(text).toContain(`<code>${name}</code>`);
    expect(plain).not.toMatch(/\[object Object\]|undefined/);
  });
});

function namesIn(schema: unknown): string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  const { properties = {}, items } = schema as { properties?: object; items?: unknown };
  return [...Object.entries(properties).flatMap(([name, one]) => [name, ...namesIn(one)]), ...namesIn(items)];
}

describe('a guide', () => {
  const hostile = '<img src=x onerror=alert(1)>';
  const guide = { name: 'x', title: 'x', shelf: 'x', file: 'docs/x.md' };
  const routes = { files: new Map([['docs/api.md', '/docs/guides/api']]), operations: new Map() };
  const rendered = (markdown: string) => renderGuide({ ...guide, markdown, tasks: '' }, routes).text;

  test('shows HTML of its text as text, wherever it occurs', () => {
    for (const markdown of [
      hostile,
      `# ${hostile}`,
      `a ${hostile} b`,
      `\`${hostile}\``,
      `| ${hostile} |\n|---|\n| ${hostile} |`,
    ])
      expect(rendered(markdown)).not.toContain('<img');
    expect(rendered('<script>run()</script>')).not.toContain('<script');
    expect(rendered('<!-- for who writes -->\n\ntext')).not.toContain('for who writes');
  });

  test('links to other guides by their path here, and not to files of the repository', () => {
    expect(rendered('[api](api.md#who-is-who)')).toContain('<a href="/docs/guides/api#who-is-who">api</a>');
    expect(rendered('[code](../src/web.ts)')).toContain('<span class="elsewhere">code</span>');
    expect(rendered('[x](javascript:alert(1))')).not.toContain('href');
  });

  test('links the calculator where the guide names its path', () => {
    expect(pages.get('/guides/performance')).toContain(
      '<a href="/docs/calculator"><code>/docs/calculator</code></a>',
    );
  });

  test('leads from the path of an operation to its page', () => {
    expect(pages.get('/guides/api')).toContain(
      '<a href="/docs/reference/users.track.bulk"><code>POST /users/track/bulk</code></a>',
    );
  });
});

describe('the search', () => {
  test.each([
    ['delete a person everywhere', 'delete-a-person'],
    ['how to roll back', 'roll-back'],
    ['restore', 'restore'],
    ['react to an alert', 'runbook'],
    ['rename users', 'identify-and-merge'],
    ['load files', 'import'],
    ['send changes to kafka', 'streams'],
    ['watch metrics', 'monitoring'],
    ['change rate limit', 'rate-limits'],
    ['deploy to kubernetes', 'deploy-kubernetes'],
    ['deploy with systemd', 'deploy'],
    ['change the number of lanes', 'lanes'],
    ['send requests again after Redis lost data', 'redis-loss'],
    ['configure it', 'configure'],
    ['run on a redis cluster', 'scale-redis-cluster'],
    ['move a workspace to another shard', 'scale-shards'],
    ['distribute tables with citus', 'scale-citus'],
    ['choose settings for production', 'configure'],
    ['move from the vendor', 'migration'],
    ['permission that an API key needs', 'permissions'],
    ['check before production', 'production-checklist'],
    ['file format of exports', 'file-formats'],
    ['order in which objects take effect', 'ordering'],
    ['noisy workspace', 'fairness'],
    ['set subscription states', 'subscriptions'],
    ['unsubscribe users', 'subscriptions'],
  ])('finds the page of the task "%s" among the first three', async (task, name) => {
    const results = /<ol class="results">(.*)/s.exec(await site.search(task))?.[1] ?? '';
    const first = [...results.matchAll(/href="\/docs\/guides\/([\w-]+)/g)].slice(0, 3);
    expect(first.map(([, page]) => page)).toContain(name);
  });

  const find = async (query: string) =>
    [...(await site.search(query)).matchAll(/<ol class="results">.*/gs)]
      .flatMap(([list]) => [...list.matchAll(/<li><a href="([^"]+)"/g)])
      .map(([, link]) => link);

  test.each([
    ['users.track', '/docs/reference/users.track'],
    ['POST /users/merge', '/docs/reference/users.merge'],
    ['Idempotency-Key', '/docs/guides/retries#retry-with-an-idempotency-key'],
    ['INTEGRATION_KEY', '/docs/guides/settings'],
    ['replay dead letter', '/docs/guides/command-line#penstock-dead-letters-replay'],
    ['subscribtion groups', '/docs/reference/subscription.groups.get'],
    ['product_id', '/docs/reference/users.track'],
    ['calculator', '/docs/calculator'],
    ['how many machines do I need', '/docs/calculator'],
  ])('finds %s among guides and reference', async (query, page) => {
    expect((await find(query)).slice(0, 10).join('\n')).toContain(page);
  });

  test('finds the operation and the guide of a word before pages that share a limit', async () => {
    const found = await find('unsubscribe');
    expect(found.slice(0, 2).sort()).toEqual([
      '/docs/guides/subscriptions',
      '/docs/reference/email.unsubscribe',
    ]);
    expect(found).not.toContain('/docs/reference/segments.details');
    expect(await site.search('unsubscribe')).not.toContain('email.status, email.blocklist');
  });

  test('reports an empty result, and shows the query as text', async () => {
    const hostile = '"><img src=x onerror=alert(1)>';
    const page = await site.search(hostile);
    expect(page).not.toContain('<img');
    expect(page).toContain('Nothing for “&quot;&gt;&lt;img');
    expect(await site.search('')).toContain('Search guides and reference');
  });

  test('splits a word with hyphens, and searches for at most eight words', async () => {
    const requested = 'one-two-three-four-five-six-seven-eight-nine';
    const text = requested.replaceAll('-', ' ').replace(' nine', '');
    const search = await createSearch([{ title: 'T', heading: 'H', path: '/p', text }]);
    expect(search(requested)).toHaveLength(1);
  });

  test('does the same amount of work for a long query as for a short one', async () => {
    const long = await site.search('event '.repeat(100_000));
    expect(long).toContain('maxlength="100"');
    expect(long.length).toBeLessThan(60_000);
    expect(await find(`${'user '.repeat(200)}`)).toHaveLength(30);
  });
});

describe('the examples', () => {
  test('are of existing operations, by their method and path', () => {
    for (const [id, { method, path: where }] of Object.entries(examples)) {
      const operation = operations.find((one) => one.id === id)!;
      expect([id, method, where.split('?')[0]]).toEqual([id, operation.method, operation.path]);
    }
  });

  test('are shown in every language on the page of their operation', () => {
    for (const [id, example] of Object.entries(examples))
      for (const { write } of languages)
        expect(pages.get(`/reference/${id}`)).toContain(
          write(example).replace(/[&<>"']/g, (character) => escaped[character]!),
        );
  });

  test('have no characters that a shell, Node or Python interprets differently', () => {
    for (const example of Object.values(examples)) {
      const texts = JSON.stringify([example.path, example.body ?? null]);
      expect(texts.replace(/\$\{\w+\}/g, '')).not.toMatch(/['`$\\]|true|false/);
    }
  });
});

const escaped: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

test('the package contains the file of every guide', () => {
  for (const { file } of readGuides()) expect(file).toMatch(/^docs\/[\w-]+\.md$/);
  const { files } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  expect(files).toEqual(expect.arrayContaining(['docs/*.md']));
});

test('the modules of the pages are imported dynamically at the first request', () => {
  const files = readdirSync(path.join(packageRoot, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.startsWith('docs'))
    .map((file) => [file, readFileSync(path.join(packageRoot, 'src', file), 'utf8')] as const);
  const users = files.filter(([, text]) => /'(?:\.\.?\/)+docs\/|'marked'|'minisearch'/.test(text));
  expect(users.map(([file]) => file)).toEqual(['edge/docs-pages.ts']);
  expect(users[0]![1]).not.toMatch(/^import (?!type)[^;]*\/docs\//m);
  expect(users[0]![1]).toContain("import('../docs/site.ts')");
});
