import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { NIL_UUID } from '../../platform/ids.ts';
import { toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import {
  type Definition,
  describe,
  InvalidDefinition,
  MAX_DEFINITION_CHARACTERS,
  readDefinition,
  usesPersonalData,
} from '../../profile/segment.ts';
import { isUuid } from '../../profile/values.ts';
import { Refusal } from '../../resources/refusal.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import type { SegmentWords, ShownSegment } from '../../store/segments.ts';
import type { Viewer, Workspace } from '../access.ts';
import { lacking, PageError, type PageServices, type Visit } from '../console.ts';
import { count, MASK, pathWith } from '../layout.ts';
import { countUsers } from './segment-count.ts';
import { definitionOfRows, emptyRow, type Rows, readRows, rowFields, rowsOf } from './segment-rows.ts';

const MAX_NAME = 255;
const MAX_PURPOSE = 1000;

/** Maximum form size in bytes. URL encoding takes up to four bytes per character of JSON. */
export const FORM_BYTES = 4 * MAX_DEFINITION_CHARACTERS;

/** Milliseconds of a count. The first count is a page, which takes at most 300 ms; a continued count may take longer. */
const COUNT_MS = { first: 250, continued: 1000 };

/** Maximum number of concurrent counts. Each keeps Postgres busy for a second. */
const MAX_CONCURRENT_COUNTS = 2;

/** Number of user ids that a count shows as examples. */
const SAMPLE = 10;

let counts = 0;

/** Values of a form and the result of the last action. */
export interface Shown {
  given?: Given;
  /** Number of users that each row matches, in words. */
  counts?: (string | undefined)[] | undefined;
  /** Error of the last action and the name of its field. */
  problem?: { field: string; message: string } | undefined;
  counted?: Part;
}

/** Values of the form. A filter is either rows or JSON. */
export interface Given {
  name: string;
  purpose: string;
  definition: string;
  rows?: Rows | undefined;
}

/** Returns the values of the form, with the row that a button adds or removes. */
function givenIn(visit: Visit<PageServices>): Given {
  const { field } = visit;
  const given = { name: field('name'), purpose: field('purpose'), definition: field('definition') };
  if (field('source') !== 'rows') return given;
  const { match, rows } = readRows(visit);
  const action = field('action');
  const [, removed] = /^remove_row_(\d{1,2})$/.exec(action) ?? [];
  const kept = rows.filter((_, index) => String(index) !== removed);
  const changed: Rows = { match, rows: action === 'add_row' ? [...kept, emptyRow] : kept };
  return { ...given, rows: changed, definition: textOf(changed) };
}

/** Returns the filter of the rows as JSON; an empty text if a row is incomplete. */
function textOf(rows: Rows): string {
  try {
    return indented(definitionOfRows(rows));
  } catch {
    return '';
  }
}

/** Whether the button only changes the number of rows. */
export const isRowAction = (action: string) => action === 'add_row' || action.startsWith('remove_row_');

/** Formats a definition for the form: indented, unless that makes it longer than the form accepts. */
export function indented(definition: Definition): string {
  const text = JSON.stringify(definition, null, 2);
  return text.length <= MAX_DEFINITION_CHARACTERS ? text : JSON.stringify(definition);
}

/** Renders the error of a field below its control. */
export function problemAt({ problem }: Shown, field: string): { marks: Part; hint: Part } {
  if (problem?.field !== field) return { marks: undefined, hint: undefined };
  const id = `segment-${field}-problem`;
  return {
    marks: html` aria-invalid="true" aria-describedby="${id}"`,
    hint: html`<strong class="hint problem" id="${id}" role="alert">${problem.message} The segment was not changed.</strong>`,
  };
}

/**
 * Describes a definition in words, shortened to `max` characters. Masked if it refers to personal data that the viewer
 * may not see.
 */
export function inWords(definition: Definition, pii: boolean, max = MAX_DEFINITION_CHARACTERS): string {
  if (!pii && usesPersonalData(definition)) return MASK;
  const words = describe(definition);
  return words.length > max ? `${words.slice(0, max)}…` : words;
}

interface Form {
  action: string;
  given: Given;
  shown: Shown;
  /** The existing segment; absent in the form for a new one. */
  segment?: ShownSegment;
}

export function form(viewer: Viewer, workspace: Workspace, { action, given, shown, segment }: Form): Part {
  const mayEdit = viewer.can('edit_segments', workspace.id);
  const mayCount = viewer.can('users', workspace.id);
  if (!mayEdit && !mayCount) return undefined;
  const at = (field: string) => problemAt(shown, field);
  const rows = given.rows ?? (shown.given ? undefined : rowsIn(given.definition));
  const namesWith = (problem: typeof at) =>
    mayEdit &&
    html`<label>Name (unique in this workspace) <input name="name" value="${given.name}" maxlength="${MAX_NAME}" autocomplete="off"${problem('name').marks}>${problem('name').hint}</label>
<label>Purpose <span class="faint">(optional)</span> <input name="purpose" value="${given.purpose}" maxlength="${MAX_PURPOSE}" autocomplete="off"${problem('purpose').marks}>${problem('purpose').hint}</label>`;
  const buttons = html`<p class="actions">${mayCount && html`<button name="action" value="count">Count matching users</button>`}
${mayEdit && html`<button class="main" name="action" value="${segment ? 'update' : 'create'}">${segment ? 'Save segment' : 'Create segment'}</button>`}</p>`;
  const head = html`<input type="hidden" name="workspace" value="${workspace.id}">`;
  // With rows, the error of the form is shown in the form with the rows.
  const ofJson = rows ? () => ({ marks: undefined, hint: undefined }) : at;
  const json = html`<form class="stack card" method="post" action="${action}">${head}
<p class="faint">Filters are explained at <code>/docs/guides/segments</code> of the API, and in <code>docs/segments.md</code>.</p>
<label>Filter as JSON <textarea name="definition" rows="8" maxlength="${MAX_DEFINITION_CHARACTERS}" spellcheck="false" autocomplete="off" required${ofJson('definition').marks}>${given.definition}</textarea>${ofJson('definition').hint}</label>
${namesWith(ofJson)}${buttons}</form>`;
  if (!rows) return json;
  return html`<form class="stack card" method="post" action="${action}" id="rows">${head}<input type="hidden" name="source" value="rows">
${mayEdit ? html`<button name="action" value="${segment ? 'update' : 'create'}" hidden></button>` : html`<button name="action" value="count" hidden></button>`}
${rowFields(rows, { counts: shown.counts ?? [], problemAt: at })}
${namesWith(at)}${buttons}</form>
<details><summary>Edit the filter as JSON</summary>${json}</details>`;
}

/** Returns the rows of a filter in JSON; undefined if it can only be edited as JSON. */
function rowsIn(definition: string): Rows | undefined {
  const rows = rowsOf(readFilter(definition));
  return rows && rows.rows.length === 0 ? { ...rows, rows: [emptyRow] } : rows;
}

/** Reads the filter of the form. @throws {InvalidDefinition | Refusal} naming the position and the rule */
function filterIn(visit: Visit<PageServices>): Definition {
  const { rows } = givenIn(visit);
  return rows ? definitionOfRows(rows) : readFilter(visit.field('definition'));
}

/** @throws {InvalidDefinition} naming the position and the rule */
function readFilter(text: string): Definition {
  if (text.length > MAX_DEFINITION_CHARACTERS)
    throw new InvalidDefinition(`'definition' must have at most ${MAX_DEFINITION_CHARACTERS} characters.`);
  let given: Json;
  try {
    given = JSON.parse(text) as Json;
  } catch (error) {
    const { message } = error as Error;
    const [, at] = /position (\d+)/.exec(message) ?? [];
    // For an unexpected character, the message quotes its surroundings instead of a position.
    if (at === undefined && !/end of JSON/.test(message))
      throw new InvalidDefinition(`'definition' is not valid JSON: ${message.slice(0, 200)}.`);
    const lines = text.slice(0, at === undefined ? text.length : Number(at)).split('\n');
    throw new InvalidDefinition(
      `'definition' is not valid JSON from line ${lines.length}, character ${lines.at(-1)!.length + 1} on.`,
    );
  }
  try {
    return readDefinition(given);
  } catch (error) {
    throw error instanceof InvalidDefinition ? new InvalidDefinition(`${error.message}.`) : error;
  }
}

/** @throws {InvalidDefinition | Refusal} naming the field and its rule */
export function readWords(visit: Visit<PageServices>): SegmentWords {
  const { field } = visit;
  const definition = filterIn(visit);
  const [name, purpose] = [field('name').trim(), field('purpose').trim()];
  if (name === '' || name.length > MAX_NAME)
    throw new Refusal(`A name must have 1 to ${MAX_NAME} characters.`, 'name');
  if (purpose.length > MAX_PURPOSE)
    throw new Refusal(`A purpose must have at most ${MAX_PURPOSE} characters.`, 'purpose');
  return { name, purpose, definition };
}

export const TAKEN =
  'Another segment of the workspace already has this name (archived segments keep their names).';

/** Runs an action. If it fails, shows the form again with the submitted values and the error. */
export async function tryAgain(
  visit: Visit<PageServices>,
  work: () => Promise<{ to: string } | Counted>,
  again: (shown: Shown) => Promise<{ title: string; body: Html }>,
) {
  const given = givenIn(visit);
  try {
    if (given.rows && isRowAction(visit.field('action'))) return await again({ given });
    const done = await work();
    return 'to' in done ? done : await again({ given, ...done });
  } catch (error) {
    const isKnown = error instanceof InvalidDefinition || error instanceof Refusal;
    if (!isKnown) throw error;
    const field = error instanceof Refusal ? (error.field ?? '') : 'definition';
    return { ...(await again({ given, problem: { field, message: error.message } })), status: 400 };
  }
}

/** Result of a count: the users of the filter, and of each row. */
interface Counted {
  counted: Part;
  counts?: (string | undefined)[] | undefined;
}

/** Reads a number that the form of a continued count sends; 0 if it is absent. */
const numberIn = (text: string) => (/^\d{1,12}$/.test(text) ? Number(text) : 0);

/** Returns the fields of the submitted rows, for the form that continues a count. */
function sentRows({ field, fields }: Visit<PageServices>): [string, string][] {
  if (field('source') !== 'rows') return [];
  return ['source', 'match', 'row_kind', 'row_name', 'row_operator', 'row_value'].flatMap((name) =>
    fields(name).map((value): [string, string] => [name, value]),
  );
}

/** Counts users for the time of COUNT_MS, from where the previous count ended. */
export async function countMembers(
  visit: Visit<PageServices>,
  workspace: Workspace,
  action: string,
): Promise<Counted> {
  const { services, viewer, field, fields } = visit;
  const workspaceId = workspace.id;
  if (!viewer.can('users', workspaceId)) throw lacking('users');
  const definition = filterIn(visit);
  if (usesPersonalData(definition) && !viewer.can('pii', workspaceId)) throw lacking('pii');
  if (counts >= MAX_CONCURRENT_COUNTS)
    throw new PageError(503, 'Too many counts are running. Try again in a few seconds.');
  const isOfRows = field('source') === 'rows';
  const isContinued = isUuid(field('after'));
  counts++;
  const {
    read,
    matched: found,
    parts,
    sample,
    after,
  } = await countUsers(services.database.pool, {
    ...{ workspaceId, definition, bySubfilter: isOfRows, sample: SAMPLE },
    after: isContinued ? field('after') : NIL_UUID,
    milliseconds: isContinued ? COUNT_MS.continued : COUNT_MS.first,
  }).finally(() => {
    counts--;
  });
  const users = numberIn(field('users')) + read;
  const matched = numberIn(field('matched')) + found;
  const rowsBefore = fields('row_matched').map(numberIn);
  const ofRows = isOfRows ? parts.map((number, index) => number + (rowsBefore[index] ?? 0)) : [];
  const kept = { workspace: workspaceId, definition: field('definition'), name: field('name') };
  const pii = viewer.can('pii', workspaceId);
  const sampled = await readProfiles(services.database.pool, workspaceId, { ids: sample, fields: [] });
  const nameOf = ({ id, first_name, last_name, email, external_id }: StoredUser) =>
    (pii && ([first_name, last_name].filter(Boolean).join(' ') || email || external_id)) || toServiceId(id);
  const hidden = {
    ...kept,
    purpose: field('purpose'),
    after,
    users: String(users),
    matched: String(matched),
  };
  const counted = html`<div class="card" role="status"><p><strong>${grouped(matched)}</strong> of ${count(users, 'user')}${users > 0 && ` (${percentOf(matched, users)})`}${after !== undefined && ', the oldest users so far'}</p>
<p class="wrap">${describe(definition)}</p>
${sampled.length > 0 && html`<p>Among them:</p><ul>${sampled.map((user) => html`<li><a href="${pathWith(`/users/${toServiceId(user.id)}`, { workspace: workspaceId })}">${nameOf(user)}</a></li>`)}</ul>`}
${
  after !== undefined &&
  html`<form method="post" action="${action}">${[...Object.entries(hidden), ...sentRows(visit), ...ofRows.map((number) => ['row_matched', String(number)])].map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<p class="actions"><button name="action" value="count">Continue counting</button></p></form>`
}</div>`;
  const among = after === undefined ? `all ${grouped(users)}` : `the oldest ${grouped(users)} so far`;
  return { counted, counts: ofRows.map((number) => `${count(number, 'user')} of ${among}`) };
}

/** Formats a part of a number as percent with one decimal at most. Only an empty part is 0 %, and only the whole 100 %. */
export function percentOf(part: number, whole: number): string {
  const percent = Math.round((part / whole) * 1000) / 10;
  if (percent === 0 && part > 0) return 'under 0.1 %';
  if (percent === 100 && part < whole) return 'over 99.9 %';
  return `${percent} %`;
}
