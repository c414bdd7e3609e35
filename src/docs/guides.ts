import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Marked, type Token, type Tokens } from 'marked';
import { packageRoot } from '../platform/files.ts';
import { type Html, html } from '../platform/html.ts';
import { asHtml } from './layout.ts';

/** Whom a guide is for, and the files of those guides in the order in which they are read. */
const shelves = {
  'Get started': [
    ...['docs/quickstart.md', 'docs/concepts.md', 'docs/clients.md', 'docs/testing-your-integration.md'],
  ],
  Guides: [
    ...['docs/identify-and-merge.md', 'docs/subscriptions.md', 'docs/retries.md', 'docs/import.md'],
    ...['docs/export.md', 'docs/segments.md', 'docs/warehouse-sync.md', 'docs/streams.md'],
    ...['docs/stream-webhooks.md', 'docs/stream-kafka.md', 'docs/stream-files.md'],
    ...['docs/preference-centers.md', 'docs/scim.md', 'docs/single-sign-on.md', 'docs/migration.md'],
    ...['docs/delete-a-person.md', 'docs/console.md'],
  ],
  Operate: [
    ...['docs/production-checklist.md', 'docs/deploy.md', 'docs/operations.md', 'docs/scale.md'],
    ...['docs/connection-poolers.md', 'docs/backup.md', 'docs/upgrade.md', 'docs/retention.md'],
    ...['docs/monitoring.md', 'docs/runbook.md', 'docs/troubleshooting.md', 'docs/security.md'],
  ],
  Reference: [
    ...['docs/api.md', 'docs/errors.md', 'docs/rate-limits.md', 'docs/permissions.md', 'docs/settings.md'],
    ...[
      'docs/command-line.md',
      'docs/metrics.md',
      'docs/differences.md',
      'docs/vendor-rules.md',
      'docs/stability.md',
    ],
  ],
  Explanation: ['docs/architecture.md', 'docs/reliability.md', 'docs/performance.md'],
};

export interface Guide {
  name: string;
  title: string;
  shelf: string;
  /** Path of the file in the repository. */
  file: string;
  markdown: string;
  /** Tasks for which docs/README.md names the page, for the search. */
  tasks: string;
}

/** A part of a guide under its heading, as text. */
export interface Section {
  heading: string;
  anchor: string;
  text: string;
}

/** What a guide's links may lead to. */
export interface Places {
  /** A path of ours, by the file of the repository that it shows. */
  files: ReadonlyMap<string, string>;
  /** The page of an operation, by its path and by its method and path, as guides write them. */
  operations: ReadonlyMap<string, string>;
}

/** @throws where a file of the list is not there */
export function readGuides(): Guide[] {
  const index = readFileSync(path.join(packageRoot, 'docs/README.md'), 'utf8').split('\n');
  return Object.entries(shelves).flatMap(([shelf, files]) =>
    files.map((file) => {
      const markdown = readFileSync(path.join(packageRoot, file), 'utf8');
      const title = /^# (.+)$/m.exec(markdown)![1]!;
      const tasks = index
        .filter((row) => row.includes(`](${path.basename(file)})`))
        .map((row) => row.split('|')[1]!.trim())
        .join('; ');
      return { name: path.basename(file, '.md').toLowerCase(), title, shelf, file, markdown, tasks };
    }),
  );
}

export const guidePath = ({ name }: Pick<Guide, 'name'>) => `/docs/guides/${name}`;

/** The anchor of a heading, as Markdown viewers make it. */
export function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

/** A guide with its headings behind its title. */
export function renderGuide(guide: Guide, places: Places): Html {
  const marked = createMarked(guide.file, places);
  const tokens = marked.lexer(guide.markdown);
  const title = tokens.findIndex((token) => token.type === 'heading' && token.depth === 1);
  const headings = tokens.filter((token): token is Tokens.Heading => isHeading(token) && token.depth === 2);
  const contents =
    headings.length > 2 &&
    html`<details class="toc"><summary>On this page</summary><ul>${headings.map(
      ({ text }) =>
        html`<li><a href="#${anchorOf(text)}">${asHtml(marked.parseInline(text) as string)}</a></li>`,
    )}</ul></details>`;
  const render = (part: Token[]) => asHtml(marked.parser(part));
  return html`<article class="guide">${render(tokens.slice(0, title + 1))}${contents}${render(tokens.slice(title + 1))}</article>`;
}

/** A text of one paragraph, such as descriptions have. */
export function inline(text: string): Html {
  return asHtml(plain.parseInline(text) as string);
}

/** The parts of a guide, for the search. */
export function sectionsOf({ markdown, title }: Guide): Section[] {
  const sections: Section[] = [{ heading: title, anchor: '', text: '' }];
  for (const token of plain.lexer(markdown)) {
    if (isHeading(token) && token.depth > 1)
      sections.push({ heading: textOf(token.text), anchor: anchorOf(token.text), text: '' });
    else if (!isHeading(token) && token.type !== 'html') sections.at(-1)!.text += ` ${textOf(token.raw)}`;
  }
  return sections;
}

const isHeading = (token: Token): token is Tokens.Heading => token.type === 'heading';

/** Markdown without its marks: good enough to be searched, and to be shown in a line. */
function textOf(markdown: string): string {
  return markdown
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/^\s*(?:```\w*|[-*|: ]+$|\d+\.|[-*#>] )/gm, ' ')
    .replace(/[`*|]+/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

const plain = createMarked('', { files: new Map(), operations: new Map() });

/** Markdown as a page shows it: no HTML of the text passes, and links lead to what this service shows. */
function createMarked(file: string, places: Places): Marked {
  const taken = new Map<string, number>();
  const marked = new Marked();
  // A link in a link would end the outer one before its words.
  let inLink = false;
  marked.use({
    renderer: {
      html: ({ text }) => (/^\s*<!--/.test(text) ? '' : html`${text}`.text),
      heading({ tokens, depth, text }) {
        const anchor = anchorOf(text);
        const times = taken.get(anchor) ?? 0;
        taken.set(anchor, times + 1);
        const id = times === 0 ? anchor : `${anchor}-${times}`;
        // An anchor has nothing but letters, digits, `_` and `-`.
        return `<h${depth} id="${id}">${this.parser.parseInline(tokens)}</h${depth}>`;
      },
      link({ href, tokens }) {
        inLink = true;
        const text = asHtml(this.parser.parseInline(tokens));
        inLink = false;
        const to = placeOf(href, file, places);
        return to === undefined
          ? html`<span class="elsewhere">${text}</span>`.text
          : html`<a href="${to}">${text}</a>`.text;
      },
      image({ href, text }) {
        const to = placeOf(href, file, places);
        return to === undefined ? '' : html`<img src="${to}" alt="${text}" loading="lazy">`.text;
      },
      codespan({ text }) {
        const to = inLink ? undefined : places.operations.get(text);
        return to === undefined
          ? html`<code>${text}</code>`.text
          : html`<a href="${to}"><code>${text}</code></a>`.text;
      },
      code: ({ text }) => html`<pre tabindex="0"><code>${text}</code></pre>`.text,
      table({ header, rows }) {
        const inside = ({ tokens }: Tokens.TableCell) => asHtml(this.parser.parseInline(tokens));
        // A column without a name has no heading.
        const heads = header.map((cell) =>
          cell.text === '' ? html`<td></td>` : html`<th scope="col">${inside(cell)}</th>`,
        );
        const head = header.some(({ text }) => text !== '') && html`<thead><tr>${heads}</tr></thead>`;
        const body = rows.map(
          (cells) => html`<tr>${cells.map((cell) => html`<td>${inside(cell)}</td>`)}</tr>`,
        );
        return html`<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>${head}<tbody>${body}</tbody></table></div>`
          .text;
      },
    },
  });
  return marked;
}

/** Where a link of a file leads here; undefined: to what is only in the repository. */
function placeOf(href: string, file: string, { files }: Places): string | undefined {
  if (/^https?:/.test(href) || href.startsWith('#')) return href;
  const [to, anchor] = href.split('#') as [string, string?];
  const known = files.get(path.posix.join(path.posix.dirname(file), to));
  return known === undefined || anchor === undefined ? known : `${known}#${anchor}`;
}
