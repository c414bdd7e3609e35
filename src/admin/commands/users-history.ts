import { type Command, InvalidArgumentError } from 'commander';
import { normalizeEmail, normalizePhone } from '../../profile/addresses.ts';
import type { Database } from '../../store/database.ts';
import { findByDeprecatedExternalId } from '../../store/external-ids.ts';
import { findByExternalId } from '../../store/identifiers.ts';
import { type HistoryRow, type HistorySubject, readHistory } from '../../store/subscription-history.ts';
import { GLOBAL } from '../../store/subscription-states.ts';
import { parseCount, parseExternalId } from '../arguments.ts';
import { addVerb, Refusal } from '../command.ts';
import { findWorkspace, withInstallation } from '../lookup.ts';
import { pageOf, printPage, type Row } from '../output.ts';

/** Adds the verb to the noun `users`. */
export function addUsersHistory(noun: Command): void {
  addVerb(noun, 'history', {
    sentence:
      'Show what became of the subscription states of a user or an address, the latest first: from what, to what, when, by which request.',
    example: 'users history --workspace default --external-id ada',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--external-id <id>', 'of this user, and of the addresses that the user has now', parseExternalId)
    .option('--email <address>', 'of this email address, whoever has it', parseEmail)
    .option('--phone <number>', 'of this phone number, whoever has it', parsePhone)
    .option('--limit <number>', 'most changes to show', parseCount, 100)
    .option('--after <place>', 'go on behind this one', parsePlace)
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
    throw new Refusal('name whose history it is by one of --external-id, --email and --phone');
  }
  await withInstallation(async ({ database }) => {
    const { id } = await findWorkspace(database, workspace);
    const subjects =
      externalId === undefined ? addresses(email, phone) : await subjectsOf(database, id, externalId);
    const { limit, after, json } = options;
    const found = await readHistory(database.pool, id, { subjects, limit: limit + 1, before: after });
    const { shown, next } = pageOf(found, limit, (last) => last.id);
    printPage(json, 'changes', { rows: shown.map(rowOf), next });
  });
}

function addresses(email: string | undefined, phone: string | undefined): HistorySubject[] {
  return email === undefined ? [{ kind: 'phone', subject: phone! }] : [{ kind: 'email', subject: email }];
}

/** A user's own, and that of the addresses that the user has now. */
async function subjectsOf(
  { pool }: Database,
  workspaceId: string,
  externalId: string,
): Promise<HistorySubject[]> {
  const [found] = await findByExternalId(pool, [workspaceId], [externalId]);
  const user = found ?? (await findByDeprecatedExternalId(pool, [workspaceId], [externalId]))[0];
  if (!user) throw new Refusal(`no user of the workspace has the external id '${externalId}'`);
  const { id, email, phone, phoneValid } = user;
  return [
    { kind: 'profile', subject: id },
    ...(email === null ? [] : addresses(email, undefined)),
    ...(phone === null || !phoneValid ? [] : addresses(undefined, phone)),
  ];
}

function rowOf({ kind, subject, subscription, group, from, to, at, requestId }: HistoryRow): Row {
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
  if (email === undefined) throw new InvalidArgumentError('It is no email address that a user can have.');
  return email;
}

function parsePhone(text: string): string {
  const number = normalizePhone(text);
  if (!number?.valid) throw new InvalidArgumentError('It is no phone number that a user is found by.');
  return number.phone;
}

function parsePlace(text: string): string {
  if (!/^\d{1,18}$/.test(text)) throw new InvalidArgumentError('It is what the page before ended with.');
  return text;
}
