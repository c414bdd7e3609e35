import { isDeepStrictEqual } from 'node:util';
import { Parser } from 'htmlparser2';
import type { PreferenceCenter, Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { grouped } from '../platform/format.ts';
import { newId } from '../platform/ids.ts';
import { linkOf, MAX_TEMPLATE } from '../preferences/page.ts';
import { MAX_EXTERNAL_ID_BYTES } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { type AuditAction, auditIn } from '../store/audit.ts';
import { byNameOrId } from '../store/name-or-id.ts';
import { isAddress } from '../store/profile-search.ts';
import {
  area,
  canBeEmpty,
  choice,
  type Field,
  optional,
  readExternalId,
  text,
  withDefault,
} from './fields.ts';
import { revokePreferenceLinks } from './operator-actions.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import { action, type Context, creation, describeResource, iso, keyset, type Owner } from './resource.ts';

/** A preference center. Entries of a list have no templates, which can be large. */
export type Center = Omit<PreferenceCenter, 'pageHtml' | 'confirmationHtml'> &
  Partial<Pick<PreferenceCenter, 'pageHtml' | 'confirmationHtml'>> & {
    workspace: { name: string };
    /** Time at which the links of all users were last revoked. Absent in a list. */
    revokedAt?: Date | null;
  };

const include = { workspace: { select: { name: true } } } satisfies Prisma.PreferenceCenterInclude;

const VIEWPORT = 'meta-viewport-content';
const LINKS = 'links-tags';

type Options = Record<string, Json>;

/** The values of the forms and of the options. A value that is absent does not change. */
interface Given {
  title?: string | undefined;
  page?: string | undefined;
  confirmation?: string | undefined;
  viewport?: string | undefined;
  icons?: Options[] | undefined;
  state?: string | undefined;
}

const states = ['active', 'draft'] as const;

const template = (what: string) =>
  area(
    { label: what, help: `the HTML, a Liquid template of 1 to ${grouped(MAX_TEMPLATE)} characters` },
    (given) => given,
    { maxLength: MAX_TEMPLATE },
  );

/** Maximum length of the link elements in characters: 20 of them with several long values. */
const MAX_ICONS = 50_000;

/** Reads link elements, for example `<link rel="icon" href="https://example.com/icon.png">`. */
function readIcons(given: string): Options[] {
  const links: Options[] = [];
  const refuse = (what: string) => {
    throw new InvalidValue(
      `It has ${what}. It must have link elements only, for example <link rel="icon" href="https://example.com/icon.png">.`,
    );
  };
  const parser = new Parser({
    onopentag(tag, attributes) {
      if (tag !== 'link') refuse(`the element ${tag}`);
      links.push(attributes);
    },
    ontext(words) {
      if (words.trim() !== '') refuse(`the text '${words.trim().slice(0, 80)}'`);
    },
  });
  parser.end(given);
  return links;
}

const fields = {
  title: optional(
    text({ label: 'Title', help: 'title of the page (default: Preference Center)' }, (given) => given),
  ),
  page: template('Page'),
  confirmation: template('Confirmation'),
  viewport: canBeEmpty(
    withDefault(
      text(
        {
          label: 'Viewport',
          help: 'content of the viewport meta element; without it, phones show the page in the width of a desktop',
        },
        (given) => given,
        { maxLength: 2048 },
      ),
      'width=device-width, initial-scale=1',
    ),
  ),
  icons: canBeEmpty(
    optional(
      area({ label: 'Icons', help: 'at most 20 link elements of icons, one after the other' }, readIcons, {
        maxLength: MAX_ICONS,
        isShort: true,
      }),
    ),
  ),
  state: {
    ...choice({ label: 'State', help: 'links open only an active preference center' }, states),
    fallback: 'active' as const,
  },
};

/** Makes a field optional that has a default in the creation. */
const unchanged = <T>({ fallback: _, ...field }: Field<T>): Field<T | undefined> => optional<T>(field);

/** The form fields by the members of the API, for errors. */
const fieldOf: Record<string, readonly [field: string, label: string]> = {
  name: ['name', 'Name'],
  preference_center_title: ['title', 'Title'],
  preference_center_page_html: ['page', 'Page'],
  confirmation_page_html: ['confirmation', 'Confirmation'],
  [`options.${VIEWPORT}`]: ['viewport', 'Viewport'],
  options: ['icons', 'Icons'],
  state: ['state', 'State'],
};

/** Returns the body of a request to the API with these values. */
function bodyOf({ title, page, confirmation, viewport, icons, state }: Given, before?: Center) {
  const old = (before?.options ?? {}) as Options;
  const meta = viewport ?? old[VIEWPORT];
  const links = icons ?? old[LINKS];
  const options = {
    ...(meta !== undefined && meta !== '' && { [VIEWPORT]: meta }),
    ...(Array.isArray(links) && links.length > 0 && { [LINKS]: links }),
  };
  return {
    ...(title !== undefined && { preference_center_title: title }),
    preference_center_page_html: page ?? before?.pageHtml ?? '',
    confirmation_page_html: confirmation ?? before?.confirmationHtml ?? '',
    ...(state !== undefined && { state }),
    options,
  } satisfies Record<string, Json>;
}

/**
 * Validates a body by the rules of the API, which include a test rendering of both templates.
 * @throws {Refusal} with the field
 */
async function readBody(
  context: Context,
  workspaceId: string,
  { body, isNew }: { body: Record<string, Json>; isNew: boolean },
) {
  // Loaded only here, because the commands that read do not need them.
  const [{ readContents, requireValid }, { BadRequest }, { RendererBusy }] = await Promise.all([
    import('../operations/preference-center/contents.ts'),
    import('../errors.ts'),
    import('../preferences/renderer.ts'),
  ]);
  try {
    requireValid(body, { isNew });
    return await context.withRenderer((renderer) =>
      readContents(workspaceId, body, { database: context.database, renderer }),
    );
  } catch (error) {
    if (error instanceof RendererBusy)
      throw new Refusal('too many pages are being rendered; try again in a few seconds', undefined, 503);
    if (!(error instanceof BadRequest)) throw error;
    const { field, error: words } = error.refusal;
    const [key, label] = fieldOf[field] ?? fieldOf[field.split('.')[0]!] ?? ['', field];
    throw new Refusal(words.replace(/^'[^']*' is not valid/, `${label} is not valid`), key);
  }
}

/** Returns a function that writes the audit entry of a change in its transaction. */
const entryOf =
  (
    { actor }: Context,
    verb: AuditAction,
    { id, workspaceId, detail }: { id: string; workspaceId: string; detail: Options },
  ) =>
  (tx: Prisma.TransactionClient) =>
    auditIn(tx, actor, [{ action: verb, subject: { kind: 'preference_center', id }, workspaceId, detail }]);

async function create(context: Context, owner: Owner, given: Given & { name: string }): Promise<Center> {
  const { name } = given;
  const contents = await readBody(context, owner.id, {
    body: { name, ...bodyOf(given) },
    isNew: true,
  });
  const [{ createCenter }, { ApiError }] = await Promise.all([
    import('../operations/preference-center/contents.ts'),
    import('../errors.ts'),
  ]);
  const subject = { id: newId(), workspaceId: owner.id };
  const detail = { name, state: contents.state ?? 'active' };
  const center = await createCenter(context.database, {
    ...{ ...subject, name, contents, now: nowDate() },
    record: entryOf(context, 'preference_centers.create', { ...subject, detail }),
  }).catch((error: unknown) => {
    if (!(error instanceof ApiError)) throw error;
    if (error.entry === 'nameTaken')
      throw new Refusal(
        `this workspace already has a preference center with the name '${name}'`,
        'name',
        409,
      );
    throw new Refusal(error.message, undefined, 409);
  });
  return { ...center, workspace: { name: owner.name }, revokedAt: null };
}

/** Changes the given members, like PUT. The last of several changes of a member wins, as in the API. */
async function change(context: Context, one: Center, given: Given): Promise<Center> {
  const { id, workspaceId, name } = one;
  const contents = await readBody(context, workspaceId, { body: bodyOf(given, one), isNew: false });
  const changed = Object.entries(contents)
    .filter(([member, value]) => !isDeepStrictEqual(value, one[member as keyof Center]))
    .map(([member]) => member);
  if (changed.length === 0) return one;
  const { updateCenter } = await import('../operations/preference-center/contents.ts');
  const center = await updateCenter(context.database, {
    ...{ workspaceId, id, contents, now: nowDate() },
    record: entryOf(context, 'preference_centers.change', { id, workspaceId, detail: { name, changed } }),
  });
  return { ...one, ...center };
}

export const preferenceCenters = describeResource<Center>({
  noun: 'preference-centers',
  one: 'preference center',
  many: 'preference centers',
  nouns: 'preference_centers',
  title: 'Preference centers',
  sentence: 'Create, change, list and show preference centers, and revoke their links.',
  example: 'preference-centers list --workspace default',
  lead: 'Pages on which a user chooses which messages to get.',
  scope: 'workspace',
  isOfOne: true,
  permit: 'centers',
  columns: [
    { name: 'preference_center_api_id', title: 'Id', kind: 'id', value: ({ id }) => id },
    { name: 'name', value: (one) => one.name },
    {
      ...{ name: 'workspace', title: 'Workspace', value: ({ workspace }: Center) => workspace.name },
      not: ['list', 'json', 'table'],
    },
    {
      ...{ name: 'preference_center_title', title: 'Title', value: ({ title }: Center) => title },
      not: ['rows', 'table'],
    },
    {
      name: 'state',
      title: 'State',
      value: ({ state }) => state,
      shown: ({ state }) => ({ badge: state, tone: state === 'active' ? 'good' : 'warn' }),
    },
    { name: 'created_at', title: 'Created', kind: 'time', value: ({ createdAt }) => iso(createdAt) },
    { name: 'updated_at', title: 'Updated', kind: 'time', value: ({ updatedAt }) => iso(updatedAt) },
    { name: 'preference_center_options', value: ({ options }) => options as Json, not: ['rows', 'table'] },
    { name: 'preference_center_page_html', value: ({ pageHtml }) => pageHtml, not: ['rows', 'table'] },
    {
      ...{ name: 'confirmation_page_html', value: ({ confirmationHtml }: Center) => confirmationHtml },
      not: ['rows', 'table'],
    },
    {
      ...{ name: 'links_revoked_at', title: 'Links revoked', kind: 'time' },
      value: ({ revokedAt }) => iso(revokedAt),
      not: ['rows', 'table', 'list'],
    },
  ],
  listing: {
    sentence: 'List the preference centers of a workspace, oldest first, including drafts.',
    example: 'preference-centers list --workspace default --json',
  },
  list: ({ database }, page) =>
    database.prisma.preferenceCenter.findMany({
      ...{ ...keyset('workspaceId', page), include },
      omit: { pageHtml: true, confirmationHtml: true },
    }),
  find: ({ database }, id, owners) =>
    withRevocation(database, { id, ...(owners && { workspaceId: { in: [...owners] } }) }),
  nameOf: (center) => center.name,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: {
    argument: '<center>',
    help: 'its name or id',
    isWithin: true,
    find: ({ database }, { text: nameOrId = '', owner }) =>
      withRevocation(database, { workspaceId: owner!.id, ...byNameOrId(nameOrId) }),
  },
  showing: {
    sentence: 'Show a preference center with its templates and the last revocation of its links.',
    example: 'preference-centers show newsletters --workspace default',
  },
  empty: 'A preference center has a page and a confirmation, both in HTML.',
  creation: creation({
    verb: 'create',
    button: 'Create preference center',
    sentence: 'Create a preference center from two templates.',
    example:
      'preference-centers create --workspace default --name newsletters --page page.html --confirmation saved.html',
    permit: 'edit_centers',
    lead: 'Both templates are rendered once before they are stored. A draft has a preview, and no link opens it.',
    done: 'Created. The preview is below.',
    fields: {
      name: text(
        {
          label: 'Name',
          help: 'letters, digits, - and _; unique in the workspace. You cannot change it later',
          value: 'name',
        },
        (given) => given,
      ),
      ...fields,
    },
    run: async (context, { owner, values }) => ({ one: await create(context, owner, values) }),
  }),
  actions: [
    action({
      verb: 'change',
      button: 'Change preference center',
      submit: 'Save',
      sentence:
        'Change the members that you give. Existing links open the new page. If two changes overlap, the last one wins.',
      example: 'preference-centers change newsletters --workspace default --page page.html',
      permit: 'edit_centers',
      lead: 'Existing links open the new page. If somebody else saves meanwhile, the last save wins.',
      done: 'Saved.',
      fields: {
        title: fields.title,
        page: unchanged(fields.page),
        confirmation: unchanged(fields.confirmation),
        viewport: unchanged(fields.viewport),
        icons: fields.icons,
        state: unchanged(fields.state),
      },
      filled({ title, pageHtml = '', confirmationHtml = '', options, state }: Center) {
        const { [VIEWPORT]: viewport = '', [LINKS]: links = [] } = options as Options;
        return {
          ...{ title, page: pageHtml, confirmation: confirmationHtml, state, viewport: String(viewport) },
          icons: (links as Options[]).map(linkOf).join('\n'),
        };
      },
      run: async (context, { one, values }) => ({ one: await change(context, one, values) }),
    }),
    action({
      verb: 'revoke',
      button: 'Revoke links',
      isConsoleOnly: true,
      sentence: 'Revoke all existing links of a preference center or of a user permanently.',
      example: 'preference-centers revoke --workspace default --external-id ada',
      permit: 'change',
      lead: 'Revoked links never work again. Links that are created afterwards work.',
      isDanger: true,
      confirm: () => 'revoke',
      done: 'Revoked permanently. New links work.',
      fields: {
        external_id: optional(
          text(
            {
              label: 'External id',
              help: 'revoke the links of this user to all preference centers; empty: the links of all users to this one',
              value: 'id',
            },
            readExternalId,
            { maxLength: MAX_EXTERNAL_ID_BYTES, isExact: true },
          ),
        ),
      },
      async run(context, { one, values: { external_id: externalId } }) {
        const { id, workspaceId } = one;
        if (externalId !== undefined) {
          // An external id that looks like an address is only confirmed to viewers who may see addresses.
          context.requirePermit(
            isAddress(externalId) ? ['users', 'change', 'pii'] : ['users', 'change'],
            workspaceId,
          );
        }
        await revokePreferenceLinks(
          context,
          workspaceId,
          externalId === undefined ? { centerId: id } : { externalId },
        );
        return { one };
      },
    }),
  ],
});

async function withRevocation(
  { prisma }: Context['database'],
  where: Prisma.PreferenceCenterWhereInput,
): Promise<Center | undefined> {
  const center = await prisma.preferenceCenter.findFirst({ where, include });
  if (!center) return undefined;
  const revocation = await prisma.preferenceLinkRevocation.findUnique({
    where: {
      workspaceId_subjectKind_subjectId: {
        ...{ workspaceId: center.workspaceId, subjectKind: 'center', subjectId: center.id },
      },
    },
  });
  return { ...center, revokedAt: revocation?.revokedAt ?? null };
}
