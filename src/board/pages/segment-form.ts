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
import { evaluateUsers, type SegmentWords, type ShownSegment } from '../../store/segments.ts';
import type { Viewer, Workspace } from '../access.ts';
import { lacking, PageError, type PageServices, type Visit } from '../console.ts';
import { count, MASK, pathWith } from '../layout.ts';

const MAX_NAME = 255;
const MAX_PURPOSE = 1000;

/** Maximum form size in bytes. URL encoding takes up to four bytes per character of JSON. */
export const FORM_BYTES = 4 * MAX_DEFINITION_CHARACTERS;

/** Milliseconds after which a count shows its intermediate result. */
const COUNT_MS = 1000;

/** Users per statement. The first statement reads few; later statements read as many as the remaining time allows. */
const USERS_PER_STATEMENT = { first: 100, least: 20, most: 1000 };

/** Maximum number of concurrent counts. Each keeps Postgres busy for a second. */
const MAX_CONCURRENT_COUNTS = 2;

/** Number of user ids that a count shows as examples. */
const SAMPLE = 10;

let counts = 0;

/** Values of a form and the result of the last action. */
export interface Shown {
  given?: Record<(typeof fields)[number], string>;
  /** Error of the last action and the name of its field. */
  problem?: { field: string; message: string } | undefined;
  counted?: Part;
}

const fields = ['name', 'purpose', 'definition'] as const;

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
  given: NonNullable<Shown['given']>;
  shown: Shown;
  /** The existing segment; absent in the form for a new one. */
  segment?: ShownSegment;
}

export function form(viewer: Viewer, workspace: Workspace, { action, given, shown, segment }: Form): Part {
  const mayEdit = viewer.can('edit_segments', workspace.id);
  const mayCount = viewer.can('users', workspace.id);
  if (!mayEdit && !mayCount) return undefined;
  const at = (field: string) => problemAt(shown, field);
  return html`<form class="stack card" method="post" action="${action}"><input type="hidden" name="workspace" value="${workspace.id}">
<p class="faint">Filters are explained at <code>/docs/guides/segments</code> of the API, and in <code>docs/segments.md</code>.</p>
<label>Filter as JSON <textarea name="definition" rows="8" maxlength="${MAX_DEFINITION_CHARACTERS}" spellcheck="false" autocomplete="off" required${at('definition').marks}>${given.definition}</textarea>${at('definition').hint}</label>
${
  mayEdit &&
  html`<label>Name (unique in this workspace) <input name="name" value="${given.name}" maxlength="${MAX_NAME}" autocomplete="off"${at('name').marks}>${at('name').hint}</label>
<label>Purpose <span class="faint">(optional)</span> <input name="purpose" value="${given.purpose}" maxlength="${MAX_PURPOSE}" autocomplete="off"${at('purpose').marks}>${at('purpose').hint}</label>`
}
<p class="actions">${mayCount && html`<button name="action" value="count">Count matching users</button>`}
${mayEdit && html`<button class="main" name="action" value="${segment ? 'update' : 'create'}">${segment ? 'Save segment' : 'Create segment'}</button>`}</p></form>`;
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
export function readWords({ field }: Visit<PageServices>): SegmentWords {
  const definition = readFilter(field('definition'));
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
  { field }: Visit<PageServices>,
  work: () => Promise<{ to: string } | { counted: Part }>,
  again: (shown: Shown) => Promise<{ title: string; body: Html }>,
) {
  const given = { name: field('name'), purpose: field('purpose'), definition: field('definition') };
  try {
    const done = await work();
    return 'to' in done ? done : await again({ given, counted: done.counted });
  } catch (error) {
    const isKnown = error instanceof InvalidDefinition || error instanceof Refusal;
    if (!isKnown) throw error;
    const field = error instanceof Refusal ? (error.field ?? '') : 'definition';
    return { ...(await again({ given, problem: { field, message: error.message } })), status: 400 };
  }
}

/** Returns how many users the next statement reads, so that it ends within the time of the count. */
export function nextLimit(read: number, elapsed: number): number {
  const { least, most: max } = USERS_PER_STATEMENT;
  const affordable = Math.floor(((COUNT_MS - elapsed) * read) / Math.max(1, elapsed));
  return Math.max(least, Math.min(max, affordable));
}

/** Counts users for at most about a second, from where the previous count ended. */
export async function countMembers(
  visit: Visit<PageServices>,
  workspace: Workspace,
  action: string,
): Promise<Part> {
  const { services, viewer, field } = visit;
  const workspaceId = workspace.id;
  if (!viewer.can('users', workspaceId)) throw lacking('users');
  const definition = readFilter(field('definition'));
  if (usesPersonalData(definition) && !viewer.can('pii', workspaceId)) throw lacking('pii');
  if (counts >= MAX_CONCURRENT_COUNTS)
    throw new PageError(503, 'Too many counts are running. Try again in a few seconds.');
  const number = (name: string) => (/^\d{1,12}$/.test(field(name)) ? Number(field(name)) : 0);
  let [users, matched] = [number('users'), number('matched')];
  let after: string | undefined = isUuid(field('after')) ? field('after') : NIL_UUID;
  const sample: string[] = [];
  const started = performance.now();
  let limit = USERS_PER_STATEMENT.first;
  let read = 0;
  counts++;
  try {
    do {
      const part = { workspaceId, definition, after, limit, sample: SAMPLE - sample.length };
      const evaluated = await evaluateUsers(services.database.pool, part);
      read += evaluated.read;
      users += evaluated.read;
      matched += evaluated.matched;
      sample.push(...evaluated.sample);
      after = evaluated.read < limit ? undefined : evaluated.last;
      limit = nextLimit(read, performance.now() - started);
    } while (after !== undefined && performance.now() - started < COUNT_MS);
  } finally {
    counts--;
  }
  const kept = { workspace: workspaceId, definition: field('definition'), name: field('name') };
  const hidden = {
    ...kept,
    purpose: field('purpose'),
    after,
    users: String(users),
    matched: String(matched),
  };
  return html`<div class="card" role="status"><p><strong>${count(matched, 'user')}</strong> of ${count(users, 'user')} that were looked at${after === undefined ? ': all of the workspace.' : ', the oldest first.'}</p>
<p class="wrap">${describe(definition)}</p>
${sample.length > 0 && html`<p>Among them: ${sample.map((id) => html`<a class="id" href="${pathWith(`/users/${toServiceId(id)}`, { workspace: workspaceId })}">${toServiceId(id)}</a> `)}</p>`}
${
  after !== undefined &&
  html`<form method="post" action="${action}">${Object.entries(hidden).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<p class="actions"><button name="action" value="count">Continue counting</button></p></form>`
}</div>`;
}
