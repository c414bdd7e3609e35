import type { Command } from 'commander';
import { validate } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import type { Config } from '../../platform/config.ts';
import type { Json } from '../../profile/json.ts';
import { keyset } from '../../resources/resource.ts';
import { inviteAccount } from '../../store/credentials.ts';
import type { Database } from '../../store/database.ts';
import { addNoun, addVerb, PENSTOCK, parseBaseUrl, Refusal } from '../command.ts';
import { commandLine, findCompanyId, withInstallation } from '../installation.ts';
import { addList, printRow, type Row } from '../output.ts';

export function addAccounts(program: Command): void {
  const noun = addNoun(program, 'accounts', {
    sentence:
      'Show console accounts and invite them. Your identity provider creates and changes accounts over SCIM.',
    example: 'accounts list --company default',
  });
  addList(noun, {
    one: 'account',
    many: 'accounts',
    sentence: 'List the console accounts, oldest first.',
    example: 'accounts list --company default --json',
    owner: 'company',
    list: ({ database }, page) =>
      database.prisma.account.findMany({ ...keyset('companyId', page), include: named }),
    rowOf,
  });
  addVerb(noun, 'show', {
    sentence: 'Show one console account with its permissions.',
    example: 'accounts show ada@example.com',
  })
    .argument('<account>', 'email address or id')
    .option('--company <company>', 'company of the account, if several have an account with this address')
    .action(show);
  addVerb(noun, 'invite', {
    sentence:
      'Print a link to set the password of an account. It works once, for three days, and replaces an earlier link.',
    example: 'accounts invite ada@example.com',
  })
    .argument('<account>', 'email address or id')
    .option('--company <company>', 'company of the account, if several have an account with this address')
    .option(
      '--board-url <url>',
      'address of the console (default: BOARD_URL, or BOARD_HOST and BOARD_PORT)',
      parseBaseUrl,
    )
    .action(invite);
}

interface OneOptions {
  company?: string;
  json?: boolean;
}

async function show(account: string, options: OneOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const found = await findAccount(database, account, options.company);
    printRow(options.json, { ...rowOf(found), app_groups: found.appGroups as Json });
  });
}

async function invite(account: string, options: OneOptions & { boardUrl?: string }): Promise<void> {
  await withInstallation(async ({ database, config }) => {
    const found = await findAccount(database, account, options.company);
    const invited = await inviteAccount(database, commandLine(), found);
    if (!invited) throw new Refusal(`the account ${found.userName} is not active; activate it over SCIM`);
    const { secret, expiresAt } = invited;
    printRow(
      options.json,
      {
        invitation: `${options.boardUrl ?? boardUrl(config)}/invitation?token=${secret}`,
        account_id: found.id,
        user_name: found.userName,
        expires_at: expiresAt.toISOString(),
      },
      'Do not share the link: with it, anyone can set the password. The console shows data of every workspace of this installation.',
    );
  });
}

function boardUrl({ BOARD_HOST, BOARD_PORT, BOARD_URL }: Config): string {
  if (BOARD_URL) return BOARD_URL.replace(/\/$/, '');
  return `http://${BOARD_HOST.includes(':') ? `[${BOARD_HOST}]` : BOARD_HOST}:${BOARD_PORT}`;
}

/** @throws {Refusal} if no account matches, or accounts of several companies match */
async function findAccount(database: Database, emailOrId: string, company?: string): Promise<Shown> {
  const companyId = await findCompanyId(database, company);
  const which = validate(emailOrId) ? { id: emailOrId } : { email: emailOrId.toLowerCase() };
  const [found, ...others] = await database.prisma.account.findMany({
    where: { ...which, ...(companyId && { companyId }) },
    include: named,
    take: 10,
  });
  if (found === undefined) {
    throw new Refusal(`no account has the email address or id '${emailOrId}'; see ${PENSTOCK} accounts list`);
  }
  if (others.length > 0) {
    const companies = [found, ...others].map((one) => one.company.name).join(', ');
    throw new Refusal(
      `several companies have an account '${emailOrId}'; name one with --company: ${companies}`,
    );
  }
  return found;
}

const named = { company: { select: { name: true } } } satisfies Prisma.AccountInclude;

type Shown = Prisma.AccountGetPayload<{ include: typeof named }>;

function rowOf(account: Shown): Row {
  return {
    account_id: account.id,
    company: account.company.name,
    user_name: account.userName,
    name: `${account.givenName} ${account.familyName}`,
    department: account.department,
    active: account.active,
    company_permissions: account.companyPermissions,
    has_password: account.passwordHash !== null,
    created_at: account.createdAt.toISOString(),
    last_sign_in_at: account.lastSignInAt?.toISOString() ?? null,
  };
}
