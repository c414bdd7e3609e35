import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import type { AuditEntry } from '../store/audit.ts';
import { newScimToken } from '../store/credentials.ts';
import { change } from './change.ts';
import { ipAllowlist, name, text, withDefault } from './fields.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import { action, creation, describeResource, iso, keyset, readById } from './resource.ts';

/** All columns except the hash. */
const select = {
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

type Token = Prisma.ScimTokenGetPayload<{ select: typeof select }>;

const KEEP = 'Save the scim_token now: it is not stored and cannot be shown again.';

/** Reads an origin, which must be usable as a header value. */
function readOrigin(given: string): string {
  if (!/^[!-~]{1,255}$/.test(given))
    throw new InvalidValue(
      'An origin must have 1 to 255 visible ASCII characters, for example https://idp.example.',
    );
  return given;
}

const entryOf = (
  verb: 'scim_tokens.issue' | 'scim_tokens.rotate' | 'scim_tokens.revoke',
  { id, companyId, name: called, origin }: Token,
): AuditEntry => ({
  ...{ action: verb, subject: { kind: 'scim_token', id }, companyId, detail: { name: called, origin } },
});

const EXAMPLE = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';

export const scimTokens = describeResource<Token>({
  noun: 'scim-tokens',
  one: 'SCIM token',
  many: 'tokens',
  nouns: 'scim tokens',
  title: 'SCIM tokens',
  sentence: 'Issue, list, rotate and revoke SCIM tokens, with which an identity provider manages accounts.',
  example: 'scim-tokens list --company default',
  lead: 'An identity provider manages the console accounts of the company with a SCIM token.',
  scope: 'company',
  permit: 'company',
  columns: [
    { name: 'scim_token_id', title: 'Id', kind: 'id', value: ({ id }) => id, not: ['list'] },
    { name: 'company', title: 'Company', value: ({ company }) => company.name, not: ['list'] },
    { name: 'name', value: (token) => token.name },
    { name: 'identifier', title: 'Begins with', kind: 'code', value: ({ identifier }) => identifier },
    { name: 'origin', title: 'Origin', value: ({ origin }) => origin },
    {
      name: 'ip_allowlist',
      title: 'Allowed IPs',
      value: (token) => token.ipAllowlist,
      shown: (token) => ({ text: token.ipAllowlist.join(', ') || 'any' }),
    },
    { name: 'created_at', title: 'Created', kind: 'time', value: ({ createdAt }) => iso(createdAt) },
    { name: 'last_seen_at', title: 'Last seen', kind: 'time', value: ({ lastSeenAt }) => iso(lastSeenAt) },
    {
      name: 'revoked_at',
      title: 'State',
      value: ({ revokedAt }) => iso(revokedAt),
      shown: ({ revokedAt }) =>
        revokedAt ? { badge: 'revoked', at: revokedAt } : { badge: 'active', tone: 'good' },
    },
  ],
  listing: {
    sentence: 'List the SCIM tokens, oldest first, without their secrets.',
    example: 'scim-tokens list --company default --json',
  },
  list: ({ database }, page) => database.prisma.scimToken.findMany({ ...keyset('companyId', page), select }),
  find: async ({ database }, id) =>
    (await database.prisma.scimToken.findUnique({ where: { id }, select })) ?? undefined,
  nameOf: (token) => token.name,
  ownerOf: ({ companyId }) => companyId,
  naming: readById('token'),
  empty: 'Its secret is shown once.',
  creation: creation({
    verb: 'issue',
    button: 'Issue token',
    sentence: 'Create a SCIM token and show its secret once.',
    example: 'scim-tokens issue --company default --origin https://idp.example --ip-allowlist 10.0.0.0/8',
    permit: 'company',
    done: 'Issued.',
    fields: {
      origin: text(
        { label: 'Origin', help: 'required value of the X-Request-Origin header', value: 'origin' },
        readOrigin,
        { placeholder: 'https://idp.example' },
      ),
      name: withDefault(name('name that lists show'), 'SCIM token'),
      ip_allowlist: ipAllowlist(
        'addresses and subnets from which it can be used, separated by commas (default: any)',
      ),
    },
    async run(context, { owner, values }) {
      const { secret, identifier, hash } = newScimToken();
      const { origin, name: called, ip_allowlist: allowed } = values;
      const data = { id: newId(), companyId: owner.id, name: called, identifier, origin };
      const one = await change(context, async (tx) => {
        const result = await tx.scimToken.create({
          data: { ...data, tokenHash: new Uint8Array(hash), ipAllowlist: allowed },
          select,
        });
        return { result, entries: [entryOf('scim_tokens.issue', result)] };
      });
      return { one, secret: { name: 'scim_token', value: secret }, note: KEEP };
    },
  }),
  actions: [
    action({
      verb: 'rotate',
      button: 'Rotate token',
      sentence:
        'Replace the secret of a SCIM token and show it once. The old secret stops working immediately.',
      example: `scim-tokens rotate ${EXAMPLE}`,
      permit: 'company',
      fields: {},
      lead: 'Replaces the secret. The old secret stops working immediately.',
      isDanger: true,
      isOffered: ({ revokedAt }: Token) => revokedAt === null,
      confirm: ({ identifier }: Token) => identifier,
      done: 'Rotated.',
      async run(context, { one: { id } }) {
        const { secret, identifier, hash } = newScimToken();
        const one = await change(context, async (tx) => {
          const { count } = await tx.scimToken.updateMany({
            where: { id, revokedAt: null },
            data: { identifier, tokenHash: new Uint8Array(hash), lastSeenAt: null },
          });
          if (count === 0) throw new Refusal(`the SCIM token ${id} is revoked; issue a new one`);
          const result = await tx.scimToken.findUniqueOrThrow({ where: { id }, select });
          return { result, entries: [entryOf('scim_tokens.rotate', result)] };
        });
        return { one, secret: { name: 'scim_token', value: secret }, note: KEEP };
      },
    }),
    action({
      verb: 'revoke',
      button: 'Revoke token',
      sentence: 'Revoke a SCIM token permanently.',
      example: `scim-tokens revoke ${EXAMPLE}`,
      permit: 'company',
      fields: {},
      lead: 'Permanent.',
      isDanger: true,
      isOffered: ({ revokedAt }: Token) => revokedAt === null,
      confirm: ({ identifier }: Token) => identifier,
      done: 'Revoked permanently.',
      async run(context, { one: { id } }) {
        const one = await change(context, async (tx) => {
          // Keep the time of the first revocation.
          const { count } = await tx.scimToken.updateMany({
            where: { id, revokedAt: null },
            data: { revokedAt: nowDate() },
          });
          const result = await tx.scimToken.findUniqueOrThrow({ where: { id }, select });
          return { result, entries: count === 0 ? [] : [entryOf('scim_tokens.revoke', result)] };
        });
        return { one };
      },
    }),
  ],
});
