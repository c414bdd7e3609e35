import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { packageRoot } from '../platform/package-root.ts';
import { samplesOf } from './examples.ts';
import { type Places, pathOf as pathOfGuide, readGuides, renderGuide, sectionsOf } from './guides.ts';
import { type AssetPath, type Contents, createShell, MOST_QUERY, startPage } from './layout.ts';
import {
  type Document,
  operationPage,
  operationsOf,
  pathOf as pathOfOperation,
  textOf,
} from './reference.ts';
import { createSearch, type Found, resultsPage, type Search } from './search.ts';

/** Styles and scripts: the console's, and what is only here. Beside the sources, not compiled. */
const assets = {
  'console.css': 'src/board/assets/console.css',
  'console.js': 'src/board/assets/console.js',
  'docs.css': 'src/docs/assets/docs.css',
  'docs.js': 'src/docs/assets/docs.js',
};

/** Where pictures that guides show lie, in the repository and in what is installed. */
const PICTURES = 'generated/screenshots';

export interface Page {
  body: Buffer;
  /** Names its content. */
  etag: string;
}

/** The pages of `/docs`. Each is made when somebody first asks for it, and kept: there are as many as guides and operations. */
export interface Site {
  /** @param place the path below `/docs`; undefined: there is no such page */
  page(place: string): Page | undefined;
  /** The page of what was found. */
  search(query: string): Promise<string>;
  /** A style or script, if the path has its present version. */
  asset(version: string, name: string): Buffer | undefined;
  /** The file of a picture that there is. */
  picture(name: string): string | undefined;
}

export function createSite(document: Document): Site {
  const files = new Map(Object.entries(assets).map(([name, file]) => [name, readAsset(file)]));
  const asset: AssetPath = (name) => `/docs/assets/${files.get(name)!.version}/${name}`;
  const guides = readGuides();
  const operations = operationsOf(document);
  const contents: Contents = {
    guides: groupBy(
      guides,
      ({ shelf }) => shelf,
      (guide) => ({ title: guide.title, path: pathOfGuide(guide) }),
    ),
    operations: groupBy(
      operations,
      ({ group }) => group,
      (operation) => ({
        ...{ title: operation.summary, path: pathOfOperation(operation) },
        ...{ method: operation.method, route: operation.route },
      }),
    ),
  };
  const shell = createShell(contents, asset);
  const pictures = existsSync(path.join(packageRoot, PICTURES))
    ? readdirSync(path.join(packageRoot, PICTURES))
    : [];
  const places: Places = {
    files: new Map([
      ...guides.map((guide) => [guide.file, pathOfGuide(guide)] as const),
      ...pictures.map((name) => [`${PICTURES}/${name}`, `/docs/pictures/${name}`] as const),
      ['README.md', '/docs'],
      ['generated/openapi.json', '/openapi.json'],
    ]),
    operations: placesOfOperations(operations),
  };

  /** How each page is made, by its path. */
  const makers = new Map<string, () => string>([
    [
      '/docs',
      () =>
        shell({
          title: 'Documentation',
          body: startPage(contents, samplesOf('users.track')!),
          path: '/docs',
        }),
    ],
    ...guides.map((guide): [string, () => string] => {
      const own = pathOfGuide(guide);
      return [own, () => shell({ title: guide.title, body: renderGuide(guide, places), path: own })];
    }),
    ...operations.map((operation): [string, () => string] => {
      const own = pathOfOperation(operation);
      const page = () => {
        // No other path that begins like it.
        const isTold = new RegExp(`${operation.route.replace(/[{}.]/g, '\\$&')}(?![\\w/{])`);
        const told = guides.filter(({ markdown }) => isTold.test(markdown));
        const entries = told.map((guide) => ({ title: guide.title, path: pathOfGuide(guide) }));
        return operationPage(operation, document.components.headers, entries);
      };
      return [own, () => shell({ title: operation.summary, body: page(), path: own })];
    }),
  ]);
  const made = new Map<string, Page>();
  let index: Promise<Search> | undefined;

  async function openSearch(): Promise<Search> {
    const parts: Found[] = operations.map((operation) => ({
      title: `${operation.method} ${operation.route}`,
      heading: operation.summary,
      path: pathOfOperation(operation),
      text: textOf(operation),
    }));
    for (const guide of guides) {
      const own = pathOfGuide(guide);
      for (const { heading, anchor, text } of sectionsOf(guide))
        parts.push({ title: guide.title, heading, text, path: anchor ? `${own}#${anchor}` : own });
      // Others get their turn.
      await setImmediate();
    }
    return createSearch(parts);
  }

  return {
    page(place) {
      const own = `/docs${place}`;
      const known = made.get(own);
      if (known) return known;
      const make = makers.get(own);
      if (!make) return undefined;
      const body = Buffer.from(make());
      const page = { body, etag: `"${versionOf(body)}"` };
      made.set(own, page);
      return page;
    },
    async search(query) {
      const asked = query.slice(0, MOST_QUERY).trim();
      index ??= openSearch().catch((error) => {
        // The next one tries again.
        index = undefined;
        throw error;
      });
      const body = resultsPage(asked, asked === '' ? [] : (await index)(asked));
      return shell({ title: 'Search', body, path: '/docs/search', query: asked });
    },
    asset(version, name) {
      const file = files.get(name);
      return file?.version === version ? file.body : undefined;
    },
    picture: (name) => (pictures.includes(name) ? path.join(packageRoot, PICTURES, name) : undefined),
  };
}

const versionOf = (body: Buffer) => createHash('sha256').update(body).digest('hex').slice(0, 16);

function readAsset(file: string) {
  const body = readFileSync(path.join(packageRoot, file));
  return { body, version: versionOf(body) };
}

/** A path alone stands for the first operation that has it. */
function placesOfOperations(operations: ReturnType<typeof operationsOf>): Map<string, string> {
  const places = new Map<string, string>();
  for (const operation of operations) {
    const { method, route } = operation;
    places.set(`${method} ${route}`, pathOfOperation(operation));
    if (!places.has(route)) places.set(route, pathOfOperation(operation));
  }
  return places;
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
