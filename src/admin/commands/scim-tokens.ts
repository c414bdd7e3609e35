import type { Command } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import type { AuditEntry } from '../../store/audit.ts';
import { newScimToken } from '../../store/credentials.ts';
import { parseId, parseIpAllowlist, parseName, parseOrigin } from '../arguments.ts';
import { change } from '../audit.ts';
import { addNoun, addVerb, PENSTOCK, Refusal } from '../command.ts';
import { findCompany, withInstallation } from '../lookup.ts';
import { addList, printRow, type Row } from '../output.ts';

const KEEP = 'Keep the scim_token now: it is stored nowhere and cannot be shown again.';

export function addScimTokens(program: Command): void {
  const noun = addNoun(program, 'scim-tokens', {
    sentence: 'Issue, list, rotate and revoke SCIM tokens, by which an identity provider manages accounts.',
    example: 'scim-tokens list --company default',
  });
  addVerb(noun, 'issue', {
    sentence: 'Make a SCIM token and show its secret, once.',
    example: 'scim-tokens issue --company default --origin https://idp.example --ip-allowlist 10.0.0.0/8',
  })
    .requiredOption('--company <company>', 'name or id of the company whose accounts it manages')
    .requiredOption('--origin <origin>', 'what X-Request-Origin has to be', parseOrigin)
    .option('--name <name>', 'what a person calls it', parseName, 'SCIM token')
    .option(
      '--ip-allowlist <list>',
      'addresses and subnets, with commas between them, that it works from (default: any)',
      parseIpAllowlist,
    )
    .action(issue);
  addList(noun, {
    one: 'token',
    many: 'tokens',
    nouns: 'scim tokens',
    sentence: 'List the SCIM tokens, the oldest first; secrets are stored nowhere and cannot be listed.',
    example: 'scim-tokens list --company default --json',
    owner: 'company',
    find: (prisma, page) => prisma.scimToken.findMany({ ...page, select: columns }),
    rowOf,
  });
  addVerb(noun, 'rotate', {
    sentence: 'Give a SCIM token a new secret and show it, once; the old one is refused from then on.',
    example: 'scim-tokens rotate 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('<id>', 'id of the token', parseId)
    .action(rotate);
  addVerb(noun, 'revoke', {
    sentence: 'Revoke a SCIM token for good: it is refused from then on.',
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
    printRow(json, { scim_token: secret, ...rowOf(token) }, KEEP);
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
    printRow(json, { scim_token: secret, ...rowOf(token) }, KEEP);
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
    printRow(json, rowOf(token));
  });
}

function entryOf(
  action: 'scim_tokens.issue' | 'scim_tokens.rotate' | 'scim_tokens.revoke',
  { id, companyId, name, origin }: Shown,
): AuditEntry {
  return { action, subject: { kind: 'scim_token', id }, companyId, detail: { name, origin } };
}

async function findToken(tx: Prisma.TransactionClient, id: string): Promise<Shown> {
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

type Shown = Prisma.ScimTokenGetPayload<{ select: typeof columns }>;

function rowOf(token: Shown): Row {
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
