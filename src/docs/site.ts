import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import MiniSearch from 'minisearch';
import { openOnce } from '../platform/concurrency.ts';
import { packageRoot } from '../platform/files.ts';
import { type Html, html, type Part } from '../platform/html.ts';
import { CALCULATOR, CALCULATOR_FOUND, calculatorPage } from './calculator.ts';
import { samplesOf } from './examples.ts';
import { guidePath, type LinkTargets, readGuides, renderGuide, sectionsOf } from './guides.ts';
import { type AssetPath, type Contents, createShell, MAX_QUERY_LENGTH, startPage } from './layout.ts';
import { type Document, operationPage, operationPath, operationsOf, textOf } from './reference.ts';

/**
 * Styles and scripts of the console and of the documentation. They are read from the source folders, because they are
 * not compiled.
 */
const assets = {
  'console.css': 'src/board/assets/console.css',
  'console.js': 'src/board/assets/console.js',
  'docs.css': 'src/docs/assets/docs.css',
  'docs.js': 'src/docs/assets/docs.js',
};

/** Folders with the pictures of the guides, in the repository and in an installation. File names are unique. */
const PICTURE_FOLDERS = ['generated/screenshots', 'docs/pictures'];

/** The pages of `/docs`. */
export interface Site {
  /**
   * Returns a page.
   * @param pagePath path below `/docs`
   * @returns undefined if the page does not exist
   */
  page(pagePath: string): Buffer | undefined;
  /** Returns the page with the results of a search. */
  search(query: string): Promise<string>;
  /** Returns the page of the sizing calculator with the result for a query string. */
  calculator(query: string): string;
  /** Returns a style or script. Undefined if the path does not have the current version. */
  asset(version: string, name: string): Buffer | undefined;
  /** Returns the file of a picture, or undefined if it does not exist. */
  picture(name: string): string | undefined;
}

export function createSite(document: Document): Site {
  const files = new Map(Object.entries(assets).map(([name, file]) => [name, readAsset(file)]));
  const asset: AssetPath = (name) => `/docs/assets/${files.get(name)!.version}/${name}`;
  const guides = readGuides();
  const operations = operationsOf(document);
  const contents = {
    guides: groupBy(
      guides,
      ({ shelf }) => shelf,
      (guide) => ({ title: guide.title, path: guidePath(guide) }),
    ),
    operations: groupBy(
      operations,
      ({ group }) => group,
      (operation) => ({
        ...{ title: operation.summary, path: operationPath(operation) },
        ...{ method: operation.method, route: operation.route },
      }),
    ),
  } satisfies Contents;
  contents.guides.get('Explanation')!.push(CALCULATOR);
  const shell = createShell(contents, asset);
  const pictures = findPictures();
  const targets: LinkTargets = {
    files: new Map([
      ...guides.map((guide) => [guide.file, guidePath(guide)] as const),
      ...[...pictures].map(([name, file]) => [file, `/docs/pictures/${name}`] as const),
      ['README.md', '/docs'],
      ['generated/openapi.json', '/openapi.json'],
    ]),
    operations: new Map([...pathsOfOperations(operations), [CALCULATOR.path, CALCULATOR.path]]),
  };
  const calculator = (query: string) =>
    shell({ ...CALCULATOR, body: calculatorPage(new URLSearchParams(query)) });

  /** Functions that render the pages, by path. */
  const renderers = new Map<string, () => string>([
    [
      '/docs',
      () =>
        shell({
          title: 'Documentation',
          body: startPage(contents, samplesOf('users.track')!),
          path: '/docs',
        }),
    ],
    [CALCULATOR.path, () => calculator('')],
    ...guides.map((guide): [string, () => string] => {
      const own = guidePath(guide);
      return [own, () => shell({ title: guide.title, body: renderGuide(guide, targets), path: own })];
    }),
    ...operations.map((operation): [string, () => string] => {
      const own = operationPath(operation);
      const page = () => {
        // Match the whole path, not only the beginning of a longer one.
        const mention = new RegExp(`${operation.route.replace(/[{}.]/g, '\\$&')}(?![\\w/{])`);
        const guidesOfOperation = guides.filter(({ markdown }) => mention.test(markdown));
        const entries = guidesOfOperation.map((guide) => ({ title: guide.title, path: guidePath(guide) }));
        return operationPage(operation, document.components.headers, entries);
      };
      return [own, () => shell({ title: operation.summary, body: page(), path: own })];
    }),
  ]);
  const open = openOnce(openSearch);

  async function openSearch(): Promise<Search> {
    const parts: Found[] = operations.map((operation) => ({
      title: `${operation.method} ${operation.route}`,
      heading: operation.summary,
      path: operationPath(operation),
      operation: operation.operationId,
      text: textOf(operation),
    }));
    for (const guide of guides) {
      const own = guidePath(guide);
      for (const { heading, anchor, text } of sectionsOf(guide))
        parts.push({
          ...{ title: guide.title, heading, text, tasks: anchor ? '' : guide.tasks },
          path: anchor ? `${own}#${anchor}` : own,
        });
      // Yields to other requests.
      await setImmediate();
    }
    parts.push({ ...CALCULATOR, ...CALCULATOR_FOUND });
    return createSearch(parts);
  }

  return {
    page(pagePath) {
      const make = renderers.get(`/docs${pagePath}`);
      return make && Buffer.from(make());
    },
    async search(query) {
      const trimmed = query.slice(0, MAX_QUERY_LENGTH).trim();
      const search = await open();
      const body = resultsPage(trimmed, trimmed === '' ? [] : search(trimmed));
      return shell({ title: 'Search', body, path: '/docs/search', query: trimmed });
    },
    calculator,
    asset(version, name) {
      const file = files.get(name);
      return file?.version === version ? file.body : undefined;
    },
    picture(name) {
      const file = pictures.get(name);
      return file === undefined ? undefined : path.join(packageRoot, file);
    },
  };
}

/** Finds the files of pictures in the repository, by name. */
function findPictures(): Map<string, string> {
  return new Map(
    PICTURE_FOLDERS.filter((folder) => existsSync(path.join(packageRoot, folder))).flatMap((folder) =>
      readdirSync(path.join(packageRoot, folder)).map((name) => [name, `${folder}/${name}`] as const),
    ),
  );
}

const versionOf = (body: Buffer) => createHash('sha256').update(body).digest('hex').slice(0, 16);

function readAsset(file: string) {
  const body = readFileSync(path.join(packageRoot, file));
  return { body, version: versionOf(body) };
}

/** Returns the page of each operation by method and path, and by path alone for the first operation with that path. */
function pathsOfOperations(operations: ReturnType<typeof operationsOf>): Map<string, string> {
  const paths = new Map<string, string>();
  for (const operation of operations) {
    const { method, route } = operation;
    paths.set(`${method} ${route}`, operationPath(operation));
    if (!paths.has(route)) paths.set(route, operationPath(operation));
  }
  return paths;
}

function groupBy<T, E>(
  all: readonly T[],
  groupOf: (one: T) => string,
  entryOf: (one: T) => E,
): Map<string, E[]> {
  const groups = new Map<string, E[]>();
  for (const one of all) groups.set(groupOf(one), [...(groups.get(groupOf(one)) ?? []), entryOf(one)]);
  return groups;
}

/** A part of a page that the search can find. */
interface Found {
  /** Title of the guide, or method and path of the operation. */
  title: string;
  heading: string;
  /** Path of the page, with the anchor of the heading. */
  path: string;
  text: string;
  /** Id of the operation, for example `email.unsubscribe`. */
  operation?: string;
  /** Tasks for which docs/README.md names the page. */
  tasks?: string;
}

const MAX_RESULTS = 30;
const MAX_WORDS = 8;
const EXCERPT = 180;

/** Number of parts that are indexed before the event loop serves other requests: a few milliseconds at most. */
const CHUNK = 5;

type Search = (query: string) => Found[];

/** Common words, which the search ignores. */
const COMMON = new Set(
  'a an and do for from how i in is it my of on or our the this to what when with'.split(' '),
);

/**
 * Returns a search over parts of pages. A part matches if it has all words of the query, except common ones. A word
 * matches by its beginning, and a long word also with a typing error.
 */
export async function createSearch(parts: readonly Found[]): Promise<Search> {
  const index = new MiniSearch<Found & { id: number }>({
    fields: ['title', 'heading', 'operation', 'text', 'tasks'],
    processTerm: (term) => (COMMON.has(term.toLowerCase()) ? null : term.toLowerCase()),
    searchOptions: {
      boost: { tasks: 6, heading: 4, operation: 4, title: 2 },
      prefix: (word) => word.length > 2,
      fuzzy: (word) => (word.length > 4 ? 0.2 : false),
      combineWith: 'AND',
    },
  });
  await index.addAllAsync(
    parts.map((part, id) => ({ ...part, id })),
    { chunkSize: CHUNK },
  );
  return (query) => {
    const words = query
      .slice(0, MAX_QUERY_LENGTH)
      .split(BETWEEN_WORDS)
      .filter(Boolean)
      .slice(0, MAX_WORDS)
      .join(' ');
    // Many guides mention a setting, but only one describes it.
    const boostDocument = (id: number) => (parts[id]!.title === 'Settings' ? 10 : 1);
    return index
      .search(words, SETTING.test(query.trim()) ? { boostDocument } : {})
      .slice(0, MAX_RESULTS)
      .map(({ id }) => parts[id]!);
  };
}

/** The name of a setting. */
const SETTING = /^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$/;

/** The separators between words that MiniSearch uses. A word with hyphens is several words. */
const BETWEEN_WORDS = /[\n\r\p{Z}\p{P}]+/u;

/** Renders the results, each with an excerpt around the first match. */
function resultsPage(query: string, results: readonly Found[]): Html {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, MAX_WORDS);
  const many = results.length === MAX_RESULTS ? `The first ${MAX_RESULTS}` : results.length;
  const summary =
    query === ''
      ? 'Search guides and reference by the field above.'
      : `${results.length === 0 ? 'Nothing' : `${many} ${results.length === 1 ? 'place' : 'places'}`} for “${query}”.`;
  return html`<h1>Search</h1>
<div data-results><p class="faint" role="status">${summary}</p>
${
  query !== '' &&
  results.length === 0 &&
  html`<p>A result contains all words in one section. Use fewer words to find more, or read <a href="/docs#contents">the contents</a>.</p>`
}<ol class="results">${results.map(
    ({ title, heading, path, text }) =>
      html`<li><a href="${path}">${heading}</a> <span class="faint">${title}</span><p>${excerpt(text, words)}</p></li>`,
  )}</ol></div>`;
}

/** Returns the text from shortly before the first match, or from its beginning. */
function excerpt(text: string, words: readonly string[]): Part {
  const positions = words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0);
  const at = Math.max(0, Math.min(...positions, text.length) - 40);
  const from = positions.length === 0 || at < EXCERPT / 2 ? 0 : text.indexOf(' ', at) + 1;
  const piece = text.slice(from, from + EXCERPT);
  const marked = words.reduce<Part[]>((parts, word) => parts.flatMap((part) => mark(part, word)), [piece]);
  return [from > 0 && '… ', marked, from + EXCERPT < text.length && ' …'];
}

function mark(part: Part, word: string): Part[] {
  if (typeof part !== 'string') return [part];
  const at = part.toLowerCase().indexOf(word);
  if (at < 0) return [part];
  const end = at + word.length;
  return [part.slice(0, at), html`<mark>${part.slice(at, end)}</mark>`, part.slice(end)];
}
