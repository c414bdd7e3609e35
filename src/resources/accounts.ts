import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { shortUtc } from '../platform/format.ts';
import { normalizeStaffEmail } from '../profile/addresses.ts';
import type { Json } from '../profile/json.ts';
import { isUuid } from '../profile/values.ts';
import { teamPermissions } from '../schemas/permissions.ts';
import { findAccountPage } from '../store/accounts.ts';
import { audited } from '../store/audit.ts';
import { createInvitedAccount, inviteAccount, revokeInvitation } from '../store/credentials.ts';
import type { Database } from '../store/database.ts';
import { byNameOrId } from '../store/name-or-id.ts';
import { endSessions, listSessions } from '../store/sessions.ts';
import {
  type Account,
  givePermissionSet,
  giveTeam,
  removePermissions,
  removeTeam,
  soleWorkspaceOf,
  suggestedNames,
  workspaceOf,
} from './account-permissions.ts';
import { accountRoleNames, accountRoles } from './account-roles.ts';
import {
  choice,
  commandOnly,
  listedIn,
  names,
  optional,
  plainBoxes,
  readName,
  readNames,
  text,
} from './fields.ts';
import { InvalidValue, Refusal, refuseTaken } from './refusal.ts';
import {
  action,
  type Context,
  creation,
  describeResource,
  iso,
  keyset,
  type Outcome,
  type Shown,
} from './resource.ts';

/** Columns of the list. The permissions of an account can have a megabyte, so they are not loaded. */
const listed = {
  ...{ id: true, companyId: true, userName: true, givenName: true, familyName: true, department: true },
  ...{ active: true, companyPermissions: true, createdAt: true, lastSignInAt: true },
  ...{ invitationExpiresAt: true, passwordHash: true, company: { select: { name: true } } },
} satisfies Prisma.AccountSelect;

const whole = { ...listed, externalId: true, modifiedAt: true, appGroups: true, version: true };

const isInvited = ({ active, invitationExpiresAt }: Account) =>
  active && invitationExpiresAt !== null && invitationExpiresAt > nowDate();

function stateOf(account: Account): Shown {
  const { active, passwordHash, lastSignInAt } = account;
  if (!active) return { badge: 'inactive', tone: 'warn' };
  if (isInvited(account)) return { badge: 'invited', tone: 'calm' };
  // A user who signs in by OpenID Connect needs no password.
  const isOut = passwordHash === null && lastSignInAt === null;
  return isOut ? { badge: 'not invited', tone: 'calm' } : { badge: 'active', tone: 'good' };
}

async function findById({ database: { prisma } }: Context, id: string): Promise<Account | undefined> {
  return (await prisma.account.findUnique({ where: { id }, select: whole })) ?? undefined;
}

const readListed = (
  prisma: Database['prisma'],
  which: Pick<Prisma.AccountFindManyArgs, 'where' | 'orderBy' | 'take'>,
): Promise<Account[]> => prisma.account.findMany({ ...which, select: listed });

async function positionOf(
  prisma: Database['prisma'],
  { companyId, id, newestFirst }: { companyId: string; id: string; newestFirst: boolean },
): Promise<number | undefined> {
  // The account may have been deleted meanwhile. The next one in the direction of the previous page has its place.
  const account = await prisma.account.findFirst({
    where: { companyId, id: newestFirst ? { gte: id } : { lte: id } },
    orderBy: { id: newestFirst ? 'asc' : 'desc' },
    select: { position: true },
  });
  return account ? Number(account.position) : undefined;
}

/** Maximum number of sessions per account. */
const MAX_SESSIONS = 100;

/** Maximum length of an email address in characters. */
const MAX_EMAIL = 254;

function readAddress(given: string): string {
  if (given.length > MAX_EMAIL || normalizeStaffEmail(given) === undefined)
    throw new InvalidValue('Must be an email address, for example ada@example.com.');
  return given;
}

/** Reads an http(s) base URL and strips trailing slashes. */
function readBaseUrl(given: string): string {
  if (!URL.canParse(given) || !/^https?:$/.test(new URL(given).protocol))
    throw new InvalidValue('Must be a URL that starts with http:// or https://.');
  return given.replace(/\/+$/, '');
}

const boardUrl = commandOnly(
  optional(
    text(
      {
        label: 'Address of the console',
        help: 'address of the console (default: BOARD_URL, or BOARD_HOST and BOARD_PORT)',
        value: 'url',
      },
      readBaseUrl,
    ),
  ),
);

/** Returns the outcome of an invitation, with the link that sets a password. */
function invitationOf(
  { consoleUrl }: Context,
  { id, userName }: Pick<Account, 'id' | 'userName'>,
  { secret, expiresAt, url = consoleUrl }: { secret: string; expiresAt: Date; url?: string | undefined },
): Outcome<Account> {
  return {
    secret: { name: 'invitation', value: `${url}/invitation?token=${secret}`, what: 'link' },
    row: { account_id: id, user_name: userName, expires_at: iso(expiresAt) },
    note: `Send the link only to ${userName}: with it, anyone can set the password of this account, once. It is valid until ${shortUtc(expiresAt)} and replaces earlier links.`,
  };
}

const workspaceField = listedIn(
  'Choose a workspace',
  text(
    { label: 'In the workspace', help: 'name or id of a workspace of the company', value: 'workspace' },
    (given) => given,
  ),
);

const teamField = text({ label: 'Team', help: 'name or id of the team', value: 'team' }, (given) => given);

const ofCompany = {
  company: optional(
    text(
      {
        label: 'Company',
        help: 'company of the account, if several have an account with this address',
        value: 'company',
      },
      (given) => given,
    ),
  ),
};

/** @throws {Refusal} if accounts of several companies match */
async function findNamed(
  { database: { prisma } }: Context,
  emailOrId: string,
  company: string | undefined,
): Promise<Account | undefined> {
  const owner =
    company === undefined
      ? undefined
      : await prisma.company.findFirst({
          where: byNameOrId(company),
        });
  if (owner === null)
    throw new Refusal(`no company has the name or the id '${company}'; see penstock companies list`);
  const which = isUuid(emailOrId) ? { id: emailOrId } : { email: emailOrId.toLowerCase() };
  const [first, ...others] = await prisma.account.findMany({
    where: { ...which, ...(owner && { companyId: owner.id }) },
    select: whole,
    take: 10,
  });
  if (first && others.length > 0) {
    const companies = [first, ...others].map((one) => one.company.name).join(', ');
    throw new Refusal(
      `several companies have an account '${emailOrId}'; name one with --company: ${companies}`,
    );
  }
  return first;
}

const again = async (context: Context, { id }: Account): Promise<Outcome<Account>> => {
  const one = await findById(context, id);
  return one ? { one } : { row: { account_id: id, deleted: true } };
};

export const accounts = describeResource<Account>({
  noun: 'accounts',
  one: 'account',
  many: 'accounts',
  title: 'Accounts',
  sentence:
    'Show console accounts, invite them, and change their permissions. An identity provider can create and change accounts over SCIM.',
  example: 'accounts list --company default',
  lead: 'Accounts can sign in to the console. Invite a person by email, or let an identity provider create accounts over SCIM. An account sees what its permissions allow: give them on the page of the account.',
  scope: 'company',
  permit: 'company',
  nameTitle: 'Account',
  columns: [
    { name: 'state', title: 'State', value: () => null, shown: stateOf, not: ['json', 'table'] },
    { name: 'account_id', title: 'Id', kind: 'id', value: ({ id }) => id, not: ['list'] },
    { name: 'company', value: ({ company }) => company.name },
    { name: 'user_name', value: ({ userName }) => userName },
    { name: 'name', title: 'Name', value: ({ givenName, familyName }) => `${givenName} ${familyName}` },
    { name: 'department', title: 'Department', value: ({ department }) => department },
    { name: 'active', value: ({ active }) => active },
    {
      name: 'company_permissions',
      title: 'Company permissions',
      kind: 'list',
      value: ({ companyPermissions }) => companyPermissions,
    },
    {
      name: 'has_password',
      title: 'Password',
      value: ({ passwordHash }) => passwordHash !== null,
      shown: ({ passwordHash }) => ({ text: passwordHash === null ? 'none yet' : 'set' }),
      not: ['list'],
    },
    {
      name: 'invitation_ends_at',
      title: 'Invitation ends',
      kind: 'time',
      value: (account) => (isInvited(account) ? iso(account.invitationExpiresAt) : ''),
      shown: (account) => (isInvited(account) ? { at: account.invitationExpiresAt } : { text: 'none' }),
      not: ['json', 'table', 'list'],
    },
    {
      name: 'external_id',
      title: 'External id',
      value: ({ externalId }) => externalId ?? null,
      not: ['json', 'table', 'list'],
    },
    {
      name: 'created_at',
      title: 'Created',
      kind: 'time',
      value: ({ createdAt }) => iso(createdAt),
      not: ['list'],
    },
    {
      name: 'modified_at',
      title: 'Updated',
      kind: 'time',
      value: ({ modifiedAt }) => iso(modifiedAt),
      not: ['json', 'table', 'list'],
    },
    {
      name: 'last_sign_in_at',
      title: 'Last sign-in',
      kind: 'time',
      value: ({ lastSignInAt }) => iso(lastSignInAt),
    },
    { name: 'app_groups', value: ({ appGroups }) => appGroups as Json | undefined },
  ],
  filters: {
    email: optional(
      text(
        {
          label: 'Email address, or what it begins with',
          help: 'only accounts whose email address begins with this text',
          value: 'text',
        },
        (given) => given.toLowerCase(),
        { maxLength: MAX_EMAIL },
      ),
    ),
  },
  listing: {
    sentence: 'List the console accounts, oldest first.',
    example: 'accounts list --company default --json',
  },
  async list({ database: { prisma, pool } }, page) {
    const { owners, after, before, newestFirst, limit, filters = {} } = page;
    const { email } = filters as { email?: string };
    const [companyId, ...others] = owners ?? [];
    if (companyId === undefined || others.length > 0) {
      const { where, ...order } = keyset('companyId', page);
      // Prisma passes the wildcards of LIKE on.
      const begins = email === undefined ? {} : { email: { startsWith: email.replace(/[\\%_]/g, '\\$&') } };
      return readListed(prisma, { where: { ...where, ...begins }, ...order });
    }
    // Within a company, the indexes begin with the company, and the position is the order of creation as well.
    const cursor = after ?? before;
    const position =
      cursor === undefined
        ? undefined
        : await positionOf(prisma, { companyId, id: cursor, newestFirst: after === undefined });
    const ids: string[] = [];
    let start = after === undefined ? { before: position } : { after: position };
    // A page of SCIM ends early if its accounts have many permissions. This list shows none of them, and goes on.
    for (let isCut = true; isCut; ) {
      const part = await findAccountPage(pool, companyId, {
        ...(email !== undefined && { condition: { op: 'sw', column: 'userName', value: email } }),
        ...{ ...start, newestFirst, limit: limit - ids.length },
      });
      ids.push(...part.page.map(({ id }) => id));
      const last = part.page.at(-1)?.position;
      start = newestFirst ? { before: last } : { after: last };
      isCut = part.isCut && ids.length < limit;
    }
    return readListed(prisma, {
      where: { id: { in: ids } },
      orderBy: { position: newestFirst ? 'desc' : 'asc' },
    });
  },
  find: findById,
  nameOf: ({ userName }) => userName,
  ownerOf: ({ companyId }) => companyId,
  naming: {
    argument: '<account>',
    help: 'email address or id',
    options: ofCompany,
    by: () => 'the email address or id',
    find: (context, { text: emailOrId = '', options }) =>
      findNamed(context, emailOrId, options.company as string | undefined),
  },
  showing: {
    sentence: 'Show one console account with its permissions.',
    example: 'accounts show ada@example.com',
  },
  empty: 'An identity provider creates accounts over SCIM with a SCIM token.',
  creation: creation({
    verb: 'create',
    button: 'Invite by email',
    submit: 'Invite',
    sentence:
      'Create an account with a role in a workspace, and print a link to set its password. The link works once, for three days.',
    example:
      'accounts create --company default --email ada@example.com --given-name Ada --family-name Lovelace --role viewer',
    permit: 'company',
    lead: 'Creates an account and a link with which the person sets a password. Penstock sends no email: send the link to the person yourself.',
    done: 'Invited.',
    fields: {
      email: text(
        { label: 'Email address', help: 'address with which the person signs in', value: 'address' },
        readAddress,
        { maxLength: MAX_EMAIL },
      ),
      given_name: text({ label: 'Given name', help: 'for example Ada', value: 'name' }, readName),
      family_name: text({ label: 'Family name', help: 'for example Lovelace', value: 'name' }, readName),
      role: optional(
        choice(
          {
            label: 'Role',
            help: 'permissions in the workspace: viewer, support or administrator (default: none, so the account sees no users); you can change them on the page of the account',
            value: 'role',
          },
          accountRoleNames,
          {
            unset: 'None: sees no users until you assign a permission set',
            texts: Object.fromEntries(accountRoleNames.map((role) => [role, accountRoles[role].text])),
          },
        ),
      ),
      workspace: listedIn(
        'Default: the only workspace of the company',
        optional({
          ...workspaceField,
          label: 'Workspace of the role',
          help: 'name or id of a workspace of the company (default: the only workspace)',
        }),
      ),
      board_url: boardUrl,
    },
    suggestions: (context, { id }) => suggestedNames(context, { companyId: id }),
    async run(context, { owner, values }) {
      const { email, given_name, family_name, role, workspace, board_url } = values;
      if (role === undefined && workspace !== undefined)
        throw new Refusal('a workspace needs a role: viewer, support or administrator', 'role');
      const workspaceId =
        role === undefined
          ? undefined
          : workspace === undefined
            ? await soleWorkspaceOf(context, owner.id)
            : await workspaceOf(context, owner.id, workspace);
      const account = {
        ...{ companyId: owner.id, userName: email, email: normalizeStaffEmail(email)! },
        ...{ givenName: given_name, familyName: family_name },
        ...(role !== undefined &&
          workspaceId !== undefined && {
            grant: { workspace: workspaceId, role, permissions: [...accountRoles[role].permissions] },
          }),
      };
      const invited = await createInvitedAccount(context.database, context.actor, account).catch(
        refuseTaken('the company has an account with this address', 'email'),
      );
      const outcome = invitationOf(
        context,
        { id: invited.id, userName: email },
        {
          ...{ secret: invited.secret, expiresAt: invited.expiresAt, url: board_url },
        },
      );
      const one = await findById(context, invited.id);
      return { ...outcome, ...(one && { one }) };
    },
  }),
  actions: [
    action({
      verb: 'invite',
      button: 'Invite to set a password',
      sentence:
        'Print a link to set the password of an account. It works once, for three days, and replaces an earlier link.',
      example: 'accounts invite ada@example.com',
      permit: 'company',
      fields: { board_url: boardUrl },
      isOffered: ({ active }: Account) => active,
      done: 'Invited.',
      async run(context, { one, values: { board_url } }) {
        const invited = await inviteAccount(context.database, context.actor, one);
        if (!invited)
          throw new Refusal(
            `the account ${one.userName} is not active; activate it over SCIM`,
            undefined,
            409,
          );
        return { ...invitationOf(context, one, { ...invited, url: board_url }), one };
      },
    }),
    action({
      verb: 'revoke-invitation',
      button: 'Revoke invitation',
      sentence: 'Revoke the link of an invitation that was not accepted.',
      example: 'accounts revoke-invitation ada@example.com',
      permit: 'company',
      fields: {},
      isDanger: true,
      isOffered: isInvited,
      done: 'Invitation link revoked.',
      async run(context, { one }) {
        await revokeInvitation(context.database, context.actor, one);
        return again(context, one);
      },
    }),
    action({
      verb: 'end-sessions',
      button: 'End all sessions',
      sentence: 'End all sessions of an account in the console.',
      example: 'accounts end-sessions ada@example.com',
      permit: 'company',
      fields: {},
      isDanger: true,
      done: 'The sessions have ended. The person must sign in again.',
      async run({ database: { pool }, actor }, { one }) {
        const scope = { accountId: one.id, companyId: one.companyId };
        const sessions = await listSessions(pool, scope, { limit: MAX_SESSIONS });
        const ids = sessions.map(({ id }) => id);
        const ended = await audited(pool, actor, async (tx) => {
          const entries = await endSessions(tx, ids, scope);
          return { result: entries.length, entries };
        });
        return { one, row: { account_id: one.id, user_name: one.userName, ended } };
      },
    }),
    action({
      verb: 'give-permission-set',
      button: 'Assign permission set',
      sentence: 'Give an account a permission set in a workspace, in place of its permissions there.',
      example: 'accounts give-permission-set ada@example.com --workspace default --set Analyst',
      permit: 'company',
      lead: 'If an identity provider sends permissions of this account over SCIM, they replace these.',
      fields: {
        workspace: workspaceField,
        set: text(
          { label: 'Permission set', help: 'name or id of a permission set of the company', value: 'set' },
          (given) => given,
        ),
      },
      suggestions: (context, one: Account) => suggestedNames(context, one),
      makers: { set: { text: 'Create a permission set', path: '/permission-sets' } },
      done: 'Permission granted. It applies from the next request of the account on.',
      async run(context, { one, values }) {
        await givePermissionSet(context, one, values);
        return again(context, one);
      },
    }),
    action({
      verb: 'give-team',
      button: 'Assign team',
      sentence: 'Give an account permissions in a team of a workspace.',
      example:
        'accounts give-team ada@example.com --workspace default --team Berlin --permissions basic_access',
      permit: 'company',
      fields: {
        workspace: workspaceField,
        team: teamField,
        permissions: names(
          { label: 'Permissions in the team', help: 'names separated by commas' },
          plainBoxes(teamPermissions),
          readNames('permission', teamPermissions),
        ),
      },
      suggestions: (context, one: Account) => suggestedNames(context, one),
      done: 'Permission granted. It applies from the next request of the account on.',
      async run(context, { one, values }) {
        await giveTeam(context, one, values);
        return again(context, one);
      },
    }),
    action({
      verb: 'remove-permissions',
      button: 'Remove all',
      sentence: 'Remove all permissions and teams of an account in a workspace.',
      example: 'accounts remove-permissions ada@example.com --workspace default',
      permit: 'company',
      fields: { workspace: workspaceField },
      isDanger: true,
      hasOwnForm: true,
      done: 'Permission removed. This applies from the next request of the account on.',
      async run(context, { one, values }) {
        await removePermissions(context, one, values.workspace);
        return again(context, one);
      },
    }),
    action({
      verb: 'remove-team',
      button: 'Remove',
      sentence: 'Remove a team from an account.',
      example: 'accounts remove-team ada@example.com --team Berlin',
      permit: 'company',
      fields: { team: teamField },
      isDanger: true,
      hasOwnForm: true,
      done: 'Permission removed. This applies from the next request of the account on.',
      async run(context, { one, values }) {
        await removeTeam(context, one, values.team);
        return again(context, one);
      },
    }),
  ],
});
