import { DateTime } from 'luxon';
import { type Html, html, type Part } from '../../platform/html.ts';
import { millisecondsOf } from '../../platform/ids.ts';
import type { Json } from '../../profile/json.ts';
import { isUuid } from '../../profile/values.ts';
import { auditActions, NO_COMPANY, recordAudit } from '../../store/audit.ts';
import { type AuditRow, type AuditSearch, MAX_SCANNED, searchAudit } from '../../store/audit-list.ts';
import type { Database } from '../../store/database.ts';
import type { Viewer } from '../access.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import {
  count,
  csvLine,
  cutAtWord,
  empty,
  moment,
  nextPage,
  pathWith,
  table,
  tree,
  uuid,
} from '../layout.ts';

const PAGE = 50;

/** Entries per query of a CSV download, and maximum number of entries read per file, including filtered ones. */
const FILE_PAGE = 500;
export const MAX_FILE_ENTRIES = 100_000;

/** Maximum length of a filter in characters. */
const MAX_TEXT = 320;

/** Maximum number of companies offered to BOARD_USER. */
const MAX_COMPANIES = 200;

/** Filters from the URL, and the search that they result in. */
interface Filters {
  given: Record<'company' | 'actor' | 'action' | 'subject' | 'from' | 'to', string>;
  search: Omit<AuditSearch, 'limit' | 'before'>;
}

/** @throws {PageError} naming the field and its rule */
function readFilters({ viewer, query }: Visit<PageServices>): Filters {
  const given = {
    ...{ company: query('company'), actor: query('actor'), action: query('action') },
    ...{ subject: query('subject'), from: query('from'), to: query('to') },
  };
  for (const [name, value] of Object.entries(given))
    if (value.length > MAX_TEXT)
      throw new PageError(400, `'${name}' must have at most ${MAX_TEXT} characters.`);
  if (given.action !== '' && !Object.hasOwn(auditActions, given.action))
    throw new PageError(400, "'action' must be one of the actions in the list.");
  if (given.company !== '' && !isUuid(given.company))
    throw new PageError(400, "'company' must be the id of a company.");
  const to = readDay('to', given.to);
  const search = {
    // An account always searches its own company, whatever the URL contains.
    companyId: companyOf(viewer, given.company),
    actor: given.actor === '' ? undefined : given.actor,
    // Hide operator entries, so that a correctly guessed operator name shows no results.
    exceptKind: given.actor !== '' && viewer.accountId !== undefined ? ('operator' as const) : undefined,
    action: given.action || undefined,
    subject: given.subject === '' ? undefined : given.subject,
    from: readDay('from', given.from)?.toJSDate(),
    // The last day is included.
    to: to?.plus({ days: 1 }).toJSDate(),
  };
  return { given, search };
}

/** Hides the operator's name and address from viewers of a company. */
export function asSeenBy({ accountId }: Viewer, row: AuditRow): AuditRow {
  if (accountId === undefined || row.actorKind !== 'operator') return row;
  return { ...row, actorName: 'the operator', address: null };
}

/** Returns the company to search: the account's own, or for BOARD_USER the selected one (undefined means all). */
function companyOf(viewer: Viewer, chosen: string): string | undefined {
  return viewer.accountId === undefined ? chosen || undefined : (viewer.companyId ?? NO_COMPANY);
}

function readDay(name: string, text: string): DateTime | undefined {
  if (text === '') return undefined;
  const day = DateTime.fromFormat(text, 'yyyy-MM-dd', { zone: 'utc' });
  if (!day.isValid || day.year < 1970 || day.year > 9000)
    throw new PageError(400, `'${name}' must be a day, for example 2026-01-31.`);
  return day;
}

const list: Page<PageServices> = {
  method: 'get',
  path: '/audit',
  right: 'company',
  async handle(visit) {
    const { services, viewer, query } = visit;
    const { given, search } = readFilters(visit);
    const before = isUuid(query('before')) ? query('before') : undefined;
    const { pool, prisma } = services.database;
    const [{ rows, next }, companies] = await Promise.all([
      searchAudit(pool, { ...search, before, limit: PAGE }),
      viewer.accountId === undefined ? companiesWith(prisma, given.company) : [],
    ]);
    const body = html`<h1>Audit</h1>
<p class="lead">Who did what, when and from where, through the console, the command line and SCIM. Entries are kept for ${count(services.config.AUDIT_DAYS, 'day')}.</p>
${form(given, companies)}
${entries(
  rows.map((row) => asSeenBy(viewer, row)),
  next !== undefined,
)}
${next && nextPage('/audit', { ...given, before: next })}
<p class="actions"><a class="button" href="${pathWith('/audit.csv', given)}">Download as CSV</a> <span class="faint">${count(MAX_FILE_ENTRIES, 'entry', 'entries')} are read for a file; its last line says where it ended, and how to go on.</span></p>`;
    return { title: 'Audit', body };
  },
};

/** Returns the first companies by name, and the selected company if it is not among them. */
async function companiesWith(prisma: Database['prisma'], chosen: string) {
  const first = await prisma.company.findMany({ orderBy: { name: 'asc' }, take: MAX_COMPANIES });
  const isThere = chosen === '' || chosen === NO_COMPANY || first.some(({ id }) => id === chosen);
  const one = isThere ? null : await prisma.company.findFirst({ where: { id: chosen } });
  return one ? [...first, one] : first;
}

function form(given: Filters['given'], companies: { id: string; name: string }[]): Html {
  const option = (value: string, text: string, chosen: string) =>
    html`<option value="${value}"${value === chosen && html` selected`}>${text}</option>`;
  return html`<form class="row" method="get" action="/audit" role="search">
${
  companies.length > 1 &&
  html`<label>Company <select name="company">${option('', 'All', given.company)}${companies.map(({ id, name }) => option(id, name, given.company))}${option(NO_COMPANY, 'none: the installation', given.company)}</select></label>`
}
<label>Action <select name="action">${option('', 'All', given.action)}${Object.keys(auditActions).map((name) => option(name, name, given.action))}</select></label>
<label class="grow">Who, in full <input type="search" name="actor" value="${given.actor}" maxlength="${MAX_TEXT}" autocomplete="off"></label>
<label class="grow">Id of what it was done to <input type="search" name="subject" value="${given.subject}" maxlength="${MAX_TEXT}" autocomplete="off"></label>
<label>From (UTC) <input type="date" name="from" value="${given.from}"></label>
<label>To <input type="date" name="to" value="${given.to}"></label>
<button class="main">Show</button></form>`;
}

/** Renders the subject of an entry as a link to all entries about it. */
function subjectLink(id: string): Html {
  const href = pathWith('/audit', { subject: id });
  return isUuid(id) ? uuid(id, href) : html`<a class="id narrow" href="${href}">${id}</a>`;
}

function entries(rows: AuditRow[], isCut: boolean): Part {
  if (rows.length === 0 && isCut)
    return empty(
      'No matching entries yet',
      `${MAX_SCANNED} entries were searched. “Older” continues after them.`,
    );
  if (rows.length === 0)
    return empty('No entries', 'Remove a filter. Every action appears here immediately.');
  return table(
    'Entries of the audit log',
    ['When', 'Who', 'What', 'Done to', 'Workspace', 'Through', 'Detail'],
    rows.map((row) => [
      moment(row.at),
      html`<span class="wrap narrow">${row.actorName || row.actorKind}</span>`,
      html`<code class="wrap narrow">${row.action}</code>`,
      html`${row.subjectKind.replaceAll('_', ' ')} ${subjectLink(row.subjectId)}`,
      html`<span class="wrap narrow">${row.workspace ?? row.workspaceId}</span>`,
      html`${row.via.replace('_', ' ')}${row.address !== null && html`<br><span class="faint wrap narrow">${row.address}</span>`}`,
      details(row.detail),
    ]),
  );
}

/** Maximum length in characters of a value that is not folded. */
const MAX_SHORT = 60;

/** Renders the details of an entry as names and values. Long and nested values are folded. */
export function details(detail: AuditRow['detail']): Part {
  const pairs = Object.entries(detail);
  if (pairs.length === 0) return undefined;
  return html`<dl class="details wrap">${pairs.map(([name, value]) => html`<div><dt>${name}</dt><dd>${detailValue(value)}</dd></div>`)}</dl>`;
}

function detailValue(value: Json): Part {
  if (typeof value === 'object' && value !== null) {
    const isFlat = Array.isArray(value) && value.every((one) => one === null || typeof one !== 'object');
    const line = isFlat ? value.join(', ') : undefined;
    if (line !== undefined && line.length <= MAX_SHORT) return line;
    const size = Object.keys(value).length;
    const summary = Array.isArray(value) ? count(size, 'element') : count(size, 'member');
    return html`<details><summary>${summary}</summary>${line ?? tree(value)}</details>`;
  }
  const text = String(value);
  if (text.length <= MAX_SHORT) return text;
  return html`<details><summary>${cutAtWord(text.slice(0, MAX_SHORT))}</summary>${text}</details>`;
}

const columns = [
  ...['id', 'at', 'company_id', 'workspace_id', 'workspace', 'actor_kind', 'actor_id', 'actor_name', 'via'],
  ...['address', 'action', 'subject_kind', 'subject_id', 'detail'],
];

const download: Page<PageServices> = {
  method: 'get',
  path: '/audit.csv',
  right: 'company',
  async handle(visit) {
    const { services, actor, viewer, query } = visit;
    const { given, search } = readFilters(visit);
    const { pool } = services.database;
    const subject = { kind: 'audit', id: viewer.companyId ?? 'all' };
    await recordAudit(pool, actor, [{ action: 'audit.download', subject, companyId: viewer.companyId }]);
    return { file: 'audit.csv', type: 'text/csv; charset=utf-8', chunks: chunks() };

    /**
     * Yields the CSV file page by page, latest entry first. If the limit was reached, the last line tells how to
     * continue.
     */
    async function* chunks() {
      yield csvLine(columns);
      let before = isUuid(query('before')) ? query('before') : undefined;
      for (let read = 0; read < MAX_FILE_ENTRIES; ) {
        const {
          rows,
          next,
          looked: scanned,
        } = await searchAudit(pool, { ...search, before, limit: FILE_PAGE });
        yield rows.map((row) => lineOf(asSeenBy(viewer, row))).join('');
        if (next === undefined) return;
        read += scanned;
        before = next;
      }
      const more = pathWith('/audit.csv', { ...given, before });
      yield csvLine([
        `The file ends here, since ${MAX_FILE_ENTRIES} entries were read: it contains the actions after ${momentOf(before!)}. It continues at ${more}`,
      ]);
    }
  },
};

/** Returns the time that is encoded in an entry's id, in ISO 8601. */
const momentOf = (id: string) => new Date(millisecondsOf(id)).toISOString();

function lineOf({ at, detail, ...row }: AuditRow): string {
  return csvLine([
    ...[row.id, at.toISOString(), row.companyId, row.workspaceId, row.workspace, row.actorKind, row.actorId],
    ...[row.actorName, row.via, row.address, row.action, row.subjectKind, row.subjectId],
    JSON.stringify(detail),
  ]);
}

export const auditPages = [list, download];
