import { createInterface } from 'node:readline/promises';
import { type Command, InvalidArgumentError } from 'commander';
import { toUserObject, userFields } from '../../operations/export/user-fields.ts';
import type { Caller } from '../../operations/operation.ts';
import { usersDelete } from '../../operations/users.delete.ts';
import { newId } from '../../platform/ids.ts';
import { toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import type { Context } from '../../resources/resource.ts';
import type { NamedUser } from '../../resources/user-selector.ts';
import { applyToUser, users } from '../../resources/users.ts';
import { recordAudit } from '../../store/audit.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import { type FoundUser, parseUserSearch, searchUsers } from '../../store/profile-search.ts';
import { addVerb, PENSTOCK, parseCount, Refusal } from '../command.ts';
import { findWorkspace, withInstallation } from '../installation.ts';
import { printJson, printPage, printRow, type Row, table } from '../output.ts';
import { addAction, addNamed, run } from '../resource-commands.ts';

/** Events and products that `users show` lists; `users export` has all of them. */
const SUMMARIES = 20;

/** Adds the verbs of `users` that find, show, export and delete single users. */
export function addUserRecords(noun: Command): void {
  addVerb(noun, 'find', {
    sentence:
      'Find users by an external id or its beginning, an alias, an email address, a phone number, or a service id.',
    example: 'users find ada@example.com --workspace default',
  })
    .argument('<text>', 'identifier of the user; an alias as label:name or by its name', parseSearchText)
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--limit <number>', 'maximum number of users to show', parseCount, 50)
    .action(find);
  addNamed(noun, users, {
    verb: 'show',
    sentence: 'Show one user: identifiers, attributes, subscription states, events and purchases.',
    example: 'users show --workspace default --external-id ada',
  }).action(run(users, show));
  addNamed(noun, users, {
    verb: 'export',
    sentence: 'Print everything that is stored about one user as JSON, as POST /users/export/ids returns it.',
    example: 'users export --workspace default --external-id ada > ada.json',
  }).action(run(users, exportUser));
  addNamed(noun, users, {
    verb: 'delete',
    sentence: 'Delete one user permanently, in order after everything that was accepted before.',
    example: 'users delete --workspace default --external-id ada --yes',
  })
    .option('--yes', 'delete without asking for confirmation')
    .action(run(users, remove));
  for (const action of users.actions) addAction(noun, users, action);
}

type FindUser = (context: Context) => Promise<NamedUser>;

async function find(
  text: string,
  { workspace, limit, json }: { workspace: string; limit: number; json?: boolean },
): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id } = await findWorkspace(database, workspace);
    const matches = await searchUsers(database.pool, [id], { search: parseUserSearch(text), limit });
    printPage(json, 'users', { rows: matches.map(foundRow), next: null });
  });
}

function foundRow(user: FoundUser): Row {
  return {
    service_id: toServiceId(user.id),
    external_id: user.externalId,
    name: [user.firstName, user.lastName].filter(Boolean).join(' '),
    email: user.email,
    phone: user.phone,
    updated_at: user.updatedAt.toISOString(),
  };
}

async function show(context: Context, one: FindUser, { json }: { json?: boolean }): Promise<void> {
  const { document } = await readUser(context, await one(context));
  if (json) return printJson(document);
  const { custom_events: events, purchases, ...facts } = document;
  printRow(false, facts);
  printSummaries('events', events);
  printSummaries('purchases', purchases);
}

function printSummaries(nouns: string, summaries: Json | undefined): void {
  if (!Array.isArray(summaries) || summaries.length === 0) return;
  const more = summaries.length - SUMMARIES;
  process.stdout.write(`\n${nouns}\n${table(summaries.slice(0, SUMMARIES) as Row[])}`);
  if (more > 0) process.stdout.write(`… and ${more} more; see ${PENSTOCK} users export\n`);
}

async function exportUser(context: Context, one: FindUser): Promise<void> {
  const user = await one(context);
  const { document } = await readUser(context, user);
  const subject = { kind: 'user', id: toServiceId(user.id) };
  await recordAudit(context.database.pool, context.actor, [
    { action: 'users.export', subject, workspaceId: user.workspaceId },
  ]);
  printJson(document);
}

async function remove(
  context: Context,
  one: FindUser,
  { json, yes }: { json?: boolean; yes?: boolean },
): Promise<void> {
  const user = await one(context);
  if (!yes) await confirmDelete(await readUser(context, user));
  const requestId = newId();
  const caller = { workspaceId: user.workspaceId, requestId } as unknown as Caller;
  const field = context.config.SERVICE_ID_FIELD;
  const { objects } = usersDelete(field).plan(caller, { [`${field}s`]: [toServiceId(user.id)] });
  const { row } = await applyToUser(context, user, { requestId, objects, entry: { action: 'users.delete' } });
  printRow(json, row, 'The user is deleted when a worker has applied everything that was accepted before.');
}

/** Asks the operator to confirm. @throws {Refusal} if the operator does not confirm, or no terminal can ask */
async function confirmDelete({ user, document }: ReadUser): Promise<void> {
  const word = user.external_id ?? user.email ?? toServiceId(user.id);
  if (!process.stdin.isTTY)
    throw new Refusal('users delete asks for confirmation on a terminal; add --yes in a script');
  const name = [document.first_name, document.last_name].filter(Boolean).join(' ');
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await terminal
    .question(`Delete ${name === '' ? 'this user' : name} permanently? Type ${word} to confirm: `)
    .finally(() => terminal.close());
  if (answer.trim() !== word) throw new Refusal('the answer does not match; the user was not deleted');
}

interface ReadUser {
  user: StoredUser;
  /** The user as the API exports it. */
  document: Row;
}

/** @throws {Refusal} if the user was deleted in the meantime */
async function readUser({ database: { pool }, config }: Context, one: NamedUser): Promise<ReadUser> {
  const fields = userFields(config.SERVICE_ID_FIELD);
  const [user] = await readProfiles(pool, one.workspaceId, { ids: [one.id], fields: Object.keys(fields) });
  if (!user) throw new Refusal(`the user ${toServiceId(one.id)} was deleted`);
  return { user, document: toUserObject(user, Object.entries(fields)) as Row };
}

const MAX_SEARCH_CHARACTERS = 1000;

function parseSearchText(text: string): string {
  if (text.trim() === '' || text.length > MAX_SEARCH_CHARACTERS)
    throw new InvalidArgumentError(`The search text must have 1 to ${MAX_SEARCH_CHARACTERS} characters.`);
  return text;
}
