import { createInterface } from 'node:readline/promises';
import { type Command, InvalidArgumentError } from 'commander';
import { toUserObject, userFields } from '../../operations/export/user-fields.ts';
import type { Caller } from '../../operations/operation.ts';
import { usersDelete } from '../../operations/users.delete.ts';
import type { Config } from '../../platform/config.ts';
import { newId } from '../../platform/ids.ts';
import { normalizeEmail, searchedPhone } from '../../profile/addresses.ts';
import { toProfileId, toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { recordAudit } from '../../store/audit.ts';
import type { Database } from '../../store/database.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import { type FoundUser, parseUserSearch, searchUsers, type UserSearch } from '../../store/profile-search.ts';
import { addVerb, PENSTOCK, parseCount, parseExternalId, Refusal } from '../command.ts';
import { commandLine, findWorkspace, withInstallation } from '../installation.ts';
import { printJson, printPage, printRow, type Row, table } from '../output.ts';

/** Events and products that `users show` lists; `users export` has all of them. */
const SUMMARIES = 20;

/** Users that an error lists when several share an email address or a phone number. */
const SHARED = 20;

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
  addSelector(
    addVerb(noun, 'show', {
      sentence: 'Show one user: identifiers, attributes, subscription states, events and purchases.',
      example: 'users show --workspace default --external-id ada',
    }),
  ).action(show);
  addSelector(
    addVerb(noun, 'export', {
      sentence:
        'Print everything that is stored about one user as JSON, as POST /users/export/ids returns it.',
      example: 'users export --workspace default --external-id ada > ada.json',
    }),
  ).action(exportUser);
  addSelector(
    addVerb(noun, 'delete', {
      sentence: 'Delete one user permanently, in order after everything that was accepted before.',
      example: 'users delete --workspace default --external-id ada --yes',
    }),
  )
    .option('--yes', 'delete without asking for confirmation')
    .action(remove);
}

function addSelector(verb: Command): Command {
  return verb
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--external-id <id>', 'external id of the user', parseExternalId)
    .option('--service-id <id>', 'service id of the user (24 hexadecimal digits)', parseServiceId)
    .option('--alias <label:name>', 'alias of the user', parseAlias)
    .option('--email <address>', 'email address of the user', parseEmail)
    .option('--phone <number>', 'phone number of the user, with country code', parsePhone);
}

interface Selector {
  workspace: string;
  externalId?: string;
  serviceId?: string;
  alias?: { label: string; name: string };
  email?: string;
  phone?: string;
  json?: boolean;
}

interface SelectedUser {
  workspaceId: string;
  /** The profile's UUID. */
  id: string;
  serviceId: string;
}

async function find(
  text: string,
  { workspace, limit, json }: { workspace: string; limit: number; json?: boolean },
): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id } = await findWorkspace(database, workspace);
    const users = await searchUsers(database.pool, [id], { search: parseUserSearch(text), limit });
    printPage(json, 'users', { rows: users.map(foundRow), next: null });
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

async function show({ json, ...selector }: Selector): Promise<void> {
  await withInstallation(async ({ config, database }) => {
    const { document } = await readUser(database, config, await selectUser(database, selector));
    if (json) return printJson(document);
    const { custom_events: events, purchases, ...facts } = document;
    printRow(false, facts);
    printSummaries('events', events);
    printSummaries('purchases', purchases);
  });
}

function printSummaries(nouns: string, summaries: Json | undefined): void {
  if (!Array.isArray(summaries) || summaries.length === 0) return;
  const more = summaries.length - SUMMARIES;
  process.stdout.write(`\n${nouns}\n${table(summaries.slice(0, SUMMARIES) as Row[])}`);
  if (more > 0) process.stdout.write(`… and ${more} more; see ${PENSTOCK} users export\n`);
}

async function exportUser({ json: _, ...selector }: Selector): Promise<void> {
  await withInstallation(async ({ config, database }) => {
    const selected = await selectUser(database, selector);
    const { document } = await readUser(database, config, selected);
    const { workspaceId, serviceId } = selected;
    await recordAudit(database.pool, commandLine(), [
      { action: 'users.export', subject: { kind: 'user', id: serviceId }, workspaceId },
    ]);
    printJson(document);
  });
}

async function remove({ json, yes, ...selector }: Selector & { yes?: boolean }): Promise<void> {
  // The queue client is loaded only by commands that write to the queue.
  const { enqueueInQueue } = await import('../queue.ts');
  await withInstallation(async (installation) => {
    const { config, database } = installation;
    const { workspaceId, serviceId, id } = await selectUser(database, selector);
    if (!yes) await confirmDelete(await readUser(database, config, { workspaceId, serviceId, id }));
    const requestId = newId();
    const caller = { workspaceId, requestId } as unknown as Caller;
    const field = config.SERVICE_ID_FIELD;
    const { objects } = usersDelete(field).plan(caller, { [`${field}s`]: [serviceId] });
    // Recorded first, because an accepted delete cannot be withdrawn.
    await recordAudit(database.pool, commandLine(), [
      {
        ...{ action: 'users.delete', subject: { kind: 'user', id: serviceId }, workspaceId },
        detail: { request_id: requestId },
      },
    ]);
    await enqueueInQueue(installation, { workspaceId, requestId, objects });
    printRow(
      json,
      { service_id: serviceId, request_id: requestId, state: 'accepted' },
      'The user is deleted when a worker has applied everything that was accepted before.',
    );
  });
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
async function readUser(
  { pool }: Database,
  { SERVICE_ID_FIELD }: Config,
  { workspaceId, id, serviceId }: SelectedUser,
): Promise<ReadUser> {
  const fields = userFields(SERVICE_ID_FIELD);
  const [user] = await readProfiles(pool, workspaceId, { ids: [id], fields: Object.keys(fields) });
  if (!user) throw new Refusal(`the user ${serviceId} was deleted`);
  return { user, document: toUserObject(user, Object.entries(fields)) as Row };
}

/** @throws {Refusal} if the options match no user or several users, or have more than one identifier */
async function selectUser(database: Database, selector: Selector): Promise<SelectedUser> {
  const { externalId, serviceId, alias, email, phone } = selector;
  const search: UserSearch = {
    ...(externalId !== undefined && { externalId }),
    ...(serviceId !== undefined && { id: toProfileId(serviceId) }),
    ...(alias !== undefined && { alias }),
    ...(email !== undefined && { email }),
    ...(phone !== undefined && { phone }),
  };
  if (Object.keys(search).length !== 1)
    throw new Refusal('name one user with --external-id, --service-id, --alias, --email or --phone');
  const { id: workspaceId } = await findWorkspace(database, selector.workspace);
  const matches = await searchUsers(database.pool, [workspaceId], { search, limit: SHARED });
  const [first] = matches;
  if (!first) throw new Refusal(`no user of the workspace has this identifier; try ${PENSTOCK} users find`);
  if (matches.length > 1) {
    const ids = matches.map(({ id }) => toServiceId(id)).join(', ');
    throw new Refusal(`several users have this address; name one with --service-id: ${ids}`);
  }
  return { workspaceId, id: first.id, serviceId: toServiceId(first.id) };
}

const MAX_SEARCH_CHARACTERS = 1000;

function parseSearchText(text: string): string {
  if (text.trim() === '' || text.length > MAX_SEARCH_CHARACTERS)
    throw new InvalidArgumentError(`The search text must have 1 to ${MAX_SEARCH_CHARACTERS} characters.`);
  return text;
}

function parseServiceId(text: string): string {
  const id = text.toLowerCase();
  if (!/^[0-9a-f]{24}$/.test(id))
    throw new InvalidArgumentError('A service id must have 24 hexadecimal digits.');
  return id;
}

function parseAlias(text: string): { label: string; name: string } {
  const [, label, name] = /^([^:]+):(.+)$/s.exec(text) ?? [];
  if (label === undefined || name === undefined)
    throw new InvalidArgumentError('An alias must be written as label:name.');
  return { label, name };
}

function parseEmail(text: string): string {
  const email = normalizeEmail(text);
  if (email === undefined) throw new InvalidArgumentError('Not a valid email address.');
  return email;
}

function parsePhone(text: string): string {
  const number = searchedPhone(text);
  if (!number?.valid)
    throw new InvalidArgumentError(
      'Not a valid phone number. Write it with its country code, as in +14155552671.',
    );
  return number.phone;
}
