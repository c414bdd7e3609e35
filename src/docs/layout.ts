import { packageVersion } from '../platform/files.ts';
import { Html, html, type Part, pageHead } from '../platform/html.ts';

/** The entries of the navigation. */
export interface Contents {
  /** Guides by section. */
  guides: ReadonlyMap<string, readonly Entry[]>;
  /** Operations by group. */
  operations: ReadonlyMap<string, readonly (Entry & { method: string; route: string })[]>;
}

export interface Entry {
  title: string;
  path: string;
}

interface Shell {
  title: string;
  body: Html;
  /** Path of the page. */
  path: string;
  /** Content of the search field. */
  query?: string;
}

/** Returns the path of a style or script. */
export type AssetPath = (name: 'console.css' | 'docs.css' | 'console.js' | 'docs.js') => string;

/** Maximum length of a search query in characters. */
export const MAX_QUERY_LENGTH = 100;

/** Marks text as safe markup. Use it only for the output of a renderer that escapes text. */
export const asHtml = (markup: string): Html => new Html(markup);

/** Creates a function that renders complete pages. */
export function createShell(contents: Contents, asset: AssetPath) {
  return ({ title, body, path, query }: Shell): string =>
    html`<!doctype html>
<html lang="en">
${pageHead({ title, styles: [asset('console.css'), asset('docs.css')], scripts: [asset('console.js'), asset('docs.js')] })}
<body class="docs">
<a class="skip" href="#main">Skip to the content</a>
<header class="side">
<a class="brand" href="/docs"${path === '/docs' && html` aria-current="page"`}>Penstock</a>
<form action="/docs/search" role="search"><input type="search" name="q" value="${query}" maxlength="${MAX_QUERY_LENGTH}" aria-label="Search the documentation" placeholder="Search" required></form>
<a class="contents-link" href="/docs#contents">Contents</a>
<nav aria-label="Documentation">${navigation(contents, path)}</nav>
<div class="who"><button type="button" class="quiet" data-theme-toggle hidden>Theme</button>
<span class="faint">${packageVersion}</span></div>
</header>
<main id="main" tabindex="-1">
${body}
</main>
</body>
</html>
`.text;
}

function navigation({ guides, operations }: Contents, present: string): Part {
  const link = (path: string, text: Part) =>
    html`<li><a href="${path}"${path === present && html` aria-current="page"`}>${text}</a></li>`;
  const shelves = [...guides].map(
    ([shelf, entries]) =>
      html`<p class="shelf">${shelf}</p><ul>${entries.map(({ path, title }) => link(path, title))}</ul>`,
  );
  const groups = [...operations].map(
    ([group, entries]) =>
      html`<details${entries.some(({ path }) => path === present) && html` open`}><summary>${group}</summary><ul class="routes">${entries.map(
        ({ path, method, route }) => link(path, html`<b>${method}</b> ${route}`),
      )}</ul></details>`,
  );
  return html`${shelves}<p class="shelf">API endpoints</p>${groups}`;
}

/** Renders the start page: a first request, and the list of all pages. */
export function startPage({ guides, operations }: Contents, sample: Html): Html {
  return html`<h1>Documentation</h1>
<p class="lead">Penstock takes events, purchases, attributes and changes of identity over REST, and applies them to Postgres. A 2xx
response means that the objects are on disk and take effect once, in order.</p>
<h2 id="try-it">A first request</h2>
<p>The examples read environment variables. <code>PENSTOCK_URL</code> is the address, for example <code>http://127.0.0.1:3000</code>.
<code>PENSTOCK_API_KEY</code> is a key with the permission of the operation. Some examples also read
<code>SUBSCRIPTION_GROUP_ID</code>, the id of an email group (<code>penstock groups create</code>), and <code>SCIM_TOKEN</code> with
<code>SCIM_ORIGIN</code>, a token with its origin (<code>penstock scim-tokens issue</code>).</p>
${sample}
<h2 id="contents">Pages</h2>
<div class="shelves">${[...guides].map(
    ([shelf, entries]) =>
      html`<div class="card"><h3>${shelf}</h3><ul>${entries.map(({ path, title }) => html`<li><a href="${path}">${title}</a></li>`)}</ul></div>`,
  )}</div>
<h2>API endpoints</h2>
<p>The OpenAPI document for programs: <a href="/openapi.json">/openapi.json</a>.</p>
${[...operations].map(
  ([group, entries]) => html`<h3>${group}</h3>
<div class="scroll" role="group" aria-label="Operations: ${group}" tabindex="0"><table><tbody>${entries.map(
    ({ path, title, method, route }) =>
      html`<tr><td class="route"><span class="method">${method}</span> <a href="${path}"><code>${breakable(route)}</code></a></td><td>${title}</td></tr>`,
  )}</tbody></table></div>`,
)}`;
}

/** Renders a path that may wrap after a slash. */
export function breakable(route: string): Part[] {
  return route.split(/(?<=\w\/)/).map((piece, index) => html`${index > 0 && html`<wbr>`}${piece}`);
}
