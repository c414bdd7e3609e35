import { type Command, InvalidArgumentError } from 'commander';
import type { Prisma } from '../../generated/prisma/client.ts';
import { takePage } from '../../platform/paging.ts';
import { normalizeEmail, searchedPhone } from '../../profile/addresses.ts';
import { blockedIds, withId } from '../../resources/blocked-ids.ts';
import { rowOf } from '../../resources/resource.ts';
import { findByDeprecatedExternalId } from '../../store/alternate-identifiers.ts';
import type { Database } from '../../store/database.ts';
import { findByExternalId } from '../../store/identifiers.ts';
import { type HistoryRow, type HistorySubject, readHistory } from '../../store/subscription-history.ts';
import { GLOBAL } from '../../store/subscription-states.ts';
import { addNoun, addVerb, parseCount, parseExternalId, parseId, Refusal } from '../command.ts';
import { findWorkspace, findWorkspaceId, withInstallation } from '../installation.ts';
import { printPage, type Row } from '../output.ts';
import { addAction, addOwnerVerb } from '../resource-commands.ts';
import { addUserRecords } from './user-records.ts';

export function addUsers(program: Command): void {
  const noun = addNoun(program, 'users', {
    sentence:
      'Find, show, change, export and delete users, show the history of their subscription states, and block external ids.',
    example: 'users find ada --workspace default',
  });
  addUserRecords(noun);
  addOwnerVerb(noun, blockedIds, blockedIds.creation!);
  addAction(noun, blockedIds, blockedIds.actions[0]!);
  addVerb(noun, 'blocked', {
    sentence: 'List the blocked external ids, with the reason of the operator or the rule that blocked them.',
    example: 'users blocked --workspace default --json',
  })
    .option('--workspace <workspace>', 'only this workspace (name or id)')
    .option('--limit <number>', 'maximum number of external ids to show', parseCount, 100)
    .option('--after <workspace/id>', 'start after this one (paging)', parseCursor)
    .action(blocked);
  addUsersHistory(noun);
}

interface ListOptions {
  workspace?: string;
  limit: number;
  after?: Key;
  json?: boolean;
}

async function blocked(options: ListOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const workspaceId = await findWorkspaceId(database, options.workspace);
    const stored = await database.prisma.blockedExternalId.findMany({
      where: {
        unblockedAt: null,
        ...(workspaceId && { workspaceId }),
        ...(options.after && afterCursor(options.after)),
      },
      orderBy: [{ workspaceId: 'asc' }, { externalId: 'asc' }],
      take: options.limit + 1,
      include: { workspace: { select: { name: true } } },
    });
    const { rows: shown, next } = takePage(stored, options.limit, cursorOf);
    const rows = shown.map((row) => rowOf(blockedIds, withId(row)));
    printPage(options.json, 'blocked users', { rows, next });
  });
}

interface Key {
  workspaceId: string;
  externalId: string;
}

/** Encodes the external id, because it can contain shell or terminal control characters. */
function cursorOf({ workspaceId, externalId }: Key): string {
  return `${workspaceId}/${encodeURIComponent(externalId)}`;
}

function parseCursor(text: string): Key {
  const [workspaceId = '', encoded = '', ...rest] = text.split('/');
  try {
    if (rest.length > 0) throw new URIError();
    return { workspaceId: parseId(workspaceId), externalId: decodeURIComponent(encoded) };
  } catch {
    throw new InvalidArgumentError('Must be the value printed after the previous page.');
  }
}

function afterCursor({ workspaceId, externalId }: Key): Prisma.BlockedExternalIdWhereInput {
  return {
    OR: [{ workspaceId: { gt: workspaceId } }, { workspaceId, externalId: { gt: externalId } }],
  };
}

/** Adds the verb `history` to the noun `users`. */
function addUsersHistory(noun: Command): void {
  addVerb(noun, 'history', {
    sentence:
      'Show the changes of subscription states of a user or an address, newest first, with the request of each change.',
    example: 'users history --workspace default --external-id ada',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option(
      '--external-id <id>',
      'changes of this user, and of the current addresses of the user',
      parseExternalId,
    )
    .option('--email <address>', 'changes of this email address, for all users', parseEmail)
    .option('--phone <number>', 'changes of this phone number, for all users', parsePhone)
    .option('--limit <number>', 'maximum number of changes to show', parseCount, 100)
    .option('--after <place>', 'start after this one (paging)', parseChangeCursor)
    .action(history);
}

interface Options {
  workspace: string;
  externalId?: string;
  email?: string;
  phone?: string;
  limit: number;
  after?: string;
  json?: boolean;
}

async function history({ workspace, externalId, email, phone, ...options }: Options): Promise<void> {
  if ([externalId, email, phone].filter((given) => given !== undefined).length !== 1) {
    throw new Refusal('set one of --external-id, --email and --phone');
  }
  await withInstallation(async ({ database }) => {
    const { id } = await findWorkspace(database, workspace);
    const subjects =
      externalId === undefined ? addresses(email, phone) : await subjectsOf(database, id, externalId);
    const { limit, after, json } = options;
    const changes = await readHistory(database.pool, id, { subjects, limit: limit + 1, before: after });
    const { rows: shown, next } = takePage(changes, limit, (last) => last.id);
    printPage(json, 'changes', { rows: shown.map(changeRowOf), next });
  });
}

function addresses(email: string | undefined, phone: string | undefined): HistorySubject[] {
  return email === undefined ? [{ kind: 'phone', subject: phone! }] : [{ kind: 'email', subject: email }];
}

/** Returns the subjects of a user's history: the user, and the current addresses of the user. */
async function subjectsOf(
  { pool }: Database,
  workspaceId: string,
  externalId: string,
): Promise<HistorySubject[]> {
  const [current] = await findByExternalId(pool, [workspaceId], [externalId]);
  const user = current ?? (await findByDeprecatedExternalId(pool, [workspaceId], [externalId]))[0];
  if (!user) throw new Refusal(`no user of the workspace has the external id '${externalId}'`);
  const { id, email, phone, phoneValid } = user;
  return [
    { kind: 'profile', subject: id },
    ...(email === null ? [] : addresses(email, undefined)),
    ...(phone === null || !phoneValid ? [] : addresses(undefined, phone)),
  ];
}

function changeRowOf({ kind, subject, subscription, group, from, to, at, requestId }: HistoryRow): Row {
  return {
    changed_at: at.toISOString(),
    subject: `${kind} ${subject}`,
    subscription: subscription === GLOBAL ? 'email' : (group ?? subscription),
    ...{ from, to },
    request_id: requestId,
  };
}

function parseEmail(text: string): string {
  const email = normalizeEmail(text);
  if (email === undefined) throw new InvalidArgumentError('Not a valid email address.');
  return email;
}

function parsePhone(text: string): string {
  const number = searchedPhone(text);
  if (!number?.valid) throw new InvalidArgumentError('Not a valid phone number.');
  return number.phone;
}

function parseChangeCursor(text: string): string {
  if (!/^\d{1,18}$/.test(text))
    throw new InvalidArgumentError('Must be the value printed after the previous page.');
  return text;
}
