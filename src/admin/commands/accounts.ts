import type { Command } from 'commander';
import { v7, validate } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import type { Config } from '../../platform/config.ts';
import type { Json } from '../../profile/json.ts';
import type { AuditEntry } from '../../store/audit.ts';
import { inviteAccount, newScimToken } from '../../store/credentials.ts';
import type { Database } from '../../store/database.ts';
import {
  addNoun,
  addVerb,
  PENSTOCK,
  parseBaseUrl,
  parseId,
  parseIpAllowlist,
  parseName,
  parseOrigin,
  Refusal,
} from '../command.ts';
import { change, commandLine, findCompany, findCompanyId, withInstallation } from '../installation.ts';
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
    find: (prisma, page) => prisma.account.findMany({ ...page, include: named }),
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

/** @throws {Refusal} when there is none, or several of different companies */
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

const KEEP = 'Save the scim_token now: it is not stored and cannot be shown again.';

export function addScimTokens(program: Command): void {
  const noun = addNoun(program, 'scim-tokens', {
    sentence: 'Issue, list, rotate and revoke SCIM tokens, with which an identity provider manages accounts.',
    example: 'scim-tokens list --company default',
  });
  addVerb(noun, 'issue', {
    sentence: 'Create a SCIM token and show its secret once.',
    example: 'scim-tokens issue --company default --origin https://idp.example --ip-allowlist 10.0.0.0/8',
  })
    .requiredOption('--company <company>', 'name or id of the company whose accounts the token manages')
    .requiredOption('--origin <origin>', 'required value of the X-Request-Origin header', parseOrigin)
    .option('--name <name>', 'name for humans', parseName, 'SCIM token')
    .option(
      '--ip-allowlist <list>',
      'addresses and subnets from which it can be used, separated by commas (default: any)',
      parseIpAllowlist,
    )
    .action(issue);
  addList(noun, {
    one: 'token',
    many: 'tokens',
    nouns: 'scim tokens',
    sentence: 'List the SCIM tokens, oldest first, without their secrets.',
    example: 'scim-tokens list --company default --json',
    owner: 'company',
    find: (prisma, page) => prisma.scimToken.findMany({ ...page, select: columns }),
    rowOf: tokenRowOf,
  });
  addVerb(noun, 'rotate', {
    sentence:
      'Replace the secret of a SCIM token and show it once. The old secret stops working immediately.',
    example: 'scim-tokens rotate 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('<id>', 'id of the token', parseId)
    .action(rotate);
  addVerb(noun, 'revoke', {
    sentence: 'Revoke a SCIM token permanently.',
    example: 'scim-tokens revoke 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('<id>', 'id of the token', parseId)
    .action(revoke);
}

interface IssueOptions {
  company: string;
  origin: string;
  name: string;
  ipAllowlist?: string[];
  json?: boolean;
}

async function issue({ company, origin, name, ipAllowlist = [], json }: IssueOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: companyId } = await findCompany(database, company);
    const { secret, identifier, hash } = newScimToken();
    const tokenHash = new Uint8Array(hash);
    const data = { id: v7(), companyId, name, identifier, tokenHash, origin, ipAllowlist };
    const token = await change(database, async (tx) => {
      const result = await tx.scimToken.create({ data, select: columns });
      return { result, entries: [entryOf('scim_tokens.issue', result)] };
    });
    printRow(json, { scim_token: secret, ...tokenRowOf(token) }, KEEP);
  });
}

async function rotate(id: string, { json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { secret, identifier, hash } = newScimToken();
    const { count, token } = await change(database, async (tx) => {
      const changed = await tx.scimToken.updateMany({
        where: { id, revokedAt: null },
        data: { identifier, tokenHash: new Uint8Array(hash), lastSeenAt: null },
      });
      const found = await findToken(tx, id);
      const entries = changed.count === 0 ? [] : [entryOf('scim_tokens.rotate', found)];
      return { result: { count: changed.count, token: found }, entries };
    });
    if (count === 0) throw new Refusal(`the SCIM token ${id} is revoked; issue a new one`);
    printRow(json, { scim_token: secret, ...tokenRowOf(token) }, KEEP);
  });
}

async function revoke(id: string, { json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const token = await change(database, async (tx) => {
      // Guarded, so that the time of the first revocation stands.
      const { count } = await tx.scimToken.updateMany({
        where: { id, revokedAt: null },
        data: { revokedAt: new Date() },
      });
      const found = await findToken(tx, id);
      return { result: found, entries: count === 0 ? [] : [entryOf('scim_tokens.revoke', found)] };
    });
    printRow(json, tokenRowOf(token));
  });
}

function entryOf(
  action: 'scim_tokens.issue' | 'scim_tokens.rotate' | 'scim_tokens.revoke',
  { id, companyId, name, origin }: ShownToken,
): AuditEntry {
  return { action, subject: { kind: 'scim_token', id }, companyId, detail: { name, origin } };
}

async function findToken(tx: Prisma.TransactionClient, id: string): Promise<ShownToken> {
  const token = await tx.scimToken.findUnique({ where: { id }, select: columns });
  if (token === null) throw new Refusal(`no SCIM token has the id ${id}; see ${PENSTOCK} scim-tokens list`);
  return token;
}

/** All but the hash. */
const columns = {
  id: true,
  companyId: true,
  name: true,
  identifier: true,
  origin: true,
  ipAllowlist: true,
  createdAt: true,
  lastSeenAt: true,
  revokedAt: true,
  company: { select: { name: true } },
} satisfies Prisma.ScimTokenSelect;

type ShownToken = Prisma.ScimTokenGetPayload<{ select: typeof columns }>;

function tokenRowOf(token: ShownToken): Row {
  return {
    scim_token_id: token.id,
    company: token.company.name,
    name: token.name,
    identifier: token.identifier,
    origin: token.origin,
    ip_allowlist: token.ipAllowlist,
    created_at: token.createdAt.toISOString(),
    last_seen_at: token.lastSeenAt?.toISOString() ?? null,
    revoked_at: token.revokedAt?.toISOString() ?? null,
  };
}
