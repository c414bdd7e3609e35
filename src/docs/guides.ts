import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Marked, type Token, type Tokens } from 'marked';
import { packageRoot } from '../platform/files.ts';
import { type Html, html } from '../platform/html.ts';
import { asHtml } from './layout.ts';

/** The guides by section of the navigation, in reading order. */
const guideFiles = {
  'Get started': [
    ...['docs/quickstart.md', 'docs/concepts.md', 'docs/clients.md', 'docs/testing-your-integration.md'],
  ],
  Guides: [
    ...['docs/identify-and-merge.md', 'docs/subscriptions.md', 'docs/retries.md', 'docs/import.md'],
    ...[
      'docs/export.md',
      'docs/export-segment.md',
      'docs/segments.md',
      'docs/warehouse-sync-tutorial.md',
      'docs/warehouse-sync.md',
      'docs/streams.md',
    ],
    ...['docs/stream-webhooks.md', 'docs/stream-kafka.md', 'docs/stream-files.md'],
    ...[
      'docs/preference-centers.md',
      'docs/scim.md',
      'docs/single-sign-on.md',
      'docs/migration.md',
      'docs/migration-proxy.md',
    ],
    ...['docs/delete-a-person.md', 'docs/console.md'],
  ],
  Operate: [
    ...['docs/production-checklist.md', 'docs/deploy.md', 'docs/deploy-kubernetes.md', 'docs/configure.md'],
    ...['docs/redis.md', 'docs/operations.md', 'docs/lanes.md', 'docs/postgres-connections.md'],
    ...['docs/outgoing-addresses.md', 'docs/overload.md', 'docs/crashed-jobs.md'],
    ...['docs/scale.md', 'docs/scale-redis-cluster.md', 'docs/scale-shards.md', 'docs/scale-citus.md'],
    ...['docs/connection-poolers.md', 'docs/backup.md', 'docs/backup-embedded.md'],
    ...['docs/backup-deployments.md', 'docs/restore.md', 'docs/redis-loss.md', 'docs/upgrade.md'],
    ...['docs/upgrade-from-1-0-0.md', 'docs/roll-back.md', 'docs/retention.md'],
    ...['docs/monitoring.md', 'docs/runbook.md', 'docs/troubleshooting.md', 'docs/security.md'],
  ],
  Reference: [
    ...['docs/api.md', 'docs/errors.md', 'docs/rate-limits.md', 'docs/permissions.md', 'docs/settings.md'],
    ...[
      'docs/command-line.md',
      'docs/metrics.md',
      'docs/scim-reference.md',
      'docs/file-formats.md',
      'docs/data-model.md',
      'docs/differences.md',
      'docs/vendor-rules.md',
      'docs/stability.md',
    ],
  ],
  Explanation: [
    'docs/architecture.md',
    'docs/reliability.md',
    'docs/bounded-work.md',
    'docs/fault-tests.md',
    'docs/ordering.md',
    'docs/fairness.md',
    'docs/performance.md',
    'docs/citus.md',
  ],
};

interface Guide {
  name: string;
  title: string;
  shelf: string;
  /** Path of the file in the repository. */
  file: string;
  markdown: string;
  /** Tasks for which docs/README.md names the page, for the search. */
  tasks: string;
}

/** A part of a guide below its heading, as plain text. */
interface Section {
  heading: string;
  anchor: string;
  text: string;
}

/** Pages that links in guides may lead to. */
export interface LinkTargets {
  /** Page path by file in the repository. */
  files: ReadonlyMap<string, string>;
  /** Page path of an operation, by its path, and by method and path, as guides write them. */
  operations: ReadonlyMap<string, string>;
}

/**
 * Reads all guides.
 * @throws if a listed file does not exist
 */
export function readGuides(): Guide[] {
  const index = readFileSync(path.join(packageRoot, 'docs/README.md'), 'utf8').split('\n');
  return Object.entries(guideFiles).flatMap(([shelf, files]) =>
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

/** Returns the anchor of a heading, in the format of common Markdown viewers. */
export function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

/** Renders a guide with a table of contents after its title. */
export function renderGuide(guide: Guide, targets: LinkTargets): Html {
  const marked = createMarked(guide.file, targets);
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

/** Renders a single paragraph of Markdown, for example a description. */
export function inline(text: string): Html {
  return asHtml(plain.parseInline(text) as string);
}

/** Splits a guide into its parts, for the search. */
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

/** Removes Markdown syntax, well enough for the search and for excerpts. */
function textOf(markdown: string): string {
  return markdown
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/^\s*(?:```\w*|[-*|: ]+$|\d+\.|[-*#>] )/gm, ' ')
    .replace(/[`*|]+/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

const plain = createMarked('', { files: new Map(), operations: new Map() });

/** Creates the renderer of a file. HTML in the text is escaped, and links lead to pages of this service. */
function createMarked(file: string, targets: LinkTargets): Marked {
  const countByAnchor = new Map<string, number>();
  const marked = new Marked();
  // A nested link would end the outer one early.
  let inLink = false;
  marked.use({
    renderer: {
      html: ({ text }) => (/^\s*<!--/.test(text) ? '' : html`${text}`.text),
      heading({ tokens, depth, text }) {
        const anchor = anchorOf(text);
        const times = countByAnchor.get(anchor) ?? 0;
        countByAnchor.set(anchor, times + 1);
        const id = times === 0 ? anchor : `${anchor}-${times}`;
        // An anchor consists of letters, digits, `_` and `-`, so it needs no escaping.
        return `<h${depth} id="${id}">${this.parser.parseInline(tokens)}</h${depth}>`;
      },
      link({ href, tokens }) {
        inLink = true;
        const text = asHtml(this.parser.parseInline(tokens));
        inLink = false;
        const to = resolveLink(href, file, targets);
        return to === undefined
          ? html`<span class="elsewhere">${text}</span>`.text
          : html`<a href="${to}">${text}</a>`.text;
      },
      image({ href, text }) {
        const to = resolveLink(href, file, targets);
        return to === undefined ? '' : html`<img src="${to}" alt="${text}" loading="lazy">`.text;
      },
      codespan({ text }) {
        const to = inLink ? undefined : targets.operations.get(text);
        return to === undefined
          ? html`<code>${text}</code>`.text
          : html`<a href="${to}"><code>${text}</code></a>`.text;
      },
      code: ({ text }) => html`<pre tabindex="0"><code>${text}</code></pre>`.text,
      table({ header, rows }) {
        const inside = ({ tokens }: Tokens.TableCell) => asHtml(this.parser.parseInline(tokens));
        // A column without a name has no header cell.
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

/** Resolves a link of a file. Returns undefined if the target exists only in the repository. */
function resolveLink(href: string, file: string, { files }: LinkTargets): string | undefined {
  if (/^https?:/.test(href) || href.startsWith('#')) return href;
  const [to, anchor] = href.split('#') as [string, string?];
  const target = files.get(path.posix.join(path.posix.dirname(file), to));
  return target === undefined || anchor === undefined ? target : `${target}#${anchor}`;
}
