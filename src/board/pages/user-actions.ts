import { ApiError } from '../../errors.ts';
import type { AcceptedObject } from '../../jobs/envelope.ts';
import { toUserObject, userFields } from '../../operations/export/user-fields.ts';
import type { Caller, Plan, QueuedOperation } from '../../operations/operation.ts';
import { now, nowDate } from '../../platform/clock.ts';
import { html, type Part } from '../../platform/html.ts';
import { newId } from '../../platform/ids.ts';
import { presentTrace } from '../../platform/tracing.ts';
import { signLink } from '../../preferences/link.ts';
import { createLinkSettings } from '../../preferences/settings.ts';
import { toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { isUuid } from '../../profile/values.ts';
import { envelopesOf } from '../../queue/pack.ts';
import { Refusal } from '../../resources/refusal.ts';
import { type AuditEntry, recordAudit } from '../../store/audit.ts';
import { readProfiles } from '../../store/export.ts';
import { requireLinkKey } from '../../store/preference-centers.ts';
import { lacking, type Page, PageError, type PageServices, type Reply, type Visit } from '../console.ts';
import { pathWith } from '../layout.ts';
import { sentence } from '../resource-form.ts';
import { findUser, headingOf, type Seen } from './find-user.ts';
import { changedPath } from './user-change.ts';
import { userPath } from './users.ts';

const exported: Page<PageServices> = {
  method: 'get',
  path: '/users/:service_id/export',
  right: 'export',
  async handle(visit) {
    const { services, viewer, actor } = visit;
    const { workspace, id, pii } = await findUser(visit);
    if (!pii) throw lacking('pii');
    if (!viewer.can('users', workspace.id)) throw lacking('users');
    const fields = userFields(services.config.SERVICE_ID_FIELD);
    const [user] = await readProfiles(services.database.pool, workspace.id, {
      ids: [id],
      fields: Object.keys(fields),
    });
    if (!user) throw new PageError(404, 'This user has just been deleted.');
    await recordAudit(services.database.pool, actor, [
      { action: 'users.export', subject: { kind: 'user', id: toServiceId(id) }, workspaceId: workspace.id },
    ]);
    const text = JSON.stringify(toUserObject(user, Object.entries(fields)), undefined, 2);
    return {
      file: `${toServiceId(id)}.json`,
      type: 'application/json; charset=utf-8',
      chunks: [`${text}\n`],
    };
  },
};

/**
 * Enqueues objects about a user. The audit entry is written first, because an enqueued job cannot be withdrawn.
 * @returns the ids of the envelopes that hold the objects
 */
async function enqueue(
  { services, viewer, actor }: Visit<PageServices>,
  { workspace, id }: Seen,
  {
    requestId,
    objects,
    entry,
  }: { requestId: string; objects: AcceptedObject[]; entry: Pick<AuditEntry, 'action' | 'detail'> },
): Promise<string[]> {
  const request = {
    request_id: requestId,
    workspace_id: workspace.id,
    accepted_at: nowDate().toISOString(),
    ...presentTrace(),
  };
  const subject = { kind: 'user', id: toServiceId(id) };
  const detail = { request_id: requestId, ...entry.detail };
  await recordAudit(services.database.pool, actor, [
    { ...entry, subject, workspaceId: workspace.id, detail },
  ]);
  const entries = await services.queue.enqueue(request, objects, { bytes: JSON.stringify(objects).length });
  const { log } = services;
  log.info(
    { request_id: requestId, account_id: viewer.accountId, action: entry.action },
    'user changed in the console',
  );
  return envelopesOf(request, entries);
}

/** Subscription states that an operator can set. For groups, `opted_in` means subscribed. */
const STATES = ['subscribed', 'unsubscribed', 'opted_in'] as const;

/** Types of attribute values in the form. */
const TYPES = ['text', 'number', 'true or false', 'JSON'] as const;

/** Maximum number of groups in the form. */
const MAX_GROUPS = 200;

/** Renders the form that sets a subscription; undefined if the viewer may not change users. */
export async function subscriptionForm({ services, viewer }: Visit<PageServices>, seen: Seen): Promise<Part> {
  const workspaceId = seen.workspace.id;
  if (!viewer.can('change', workspaceId)) return undefined;
  const groups = await services.database.prisma.subscriptionGroup.findMany({
    where: { workspaceId, archivedAt: null },
    orderBy: { name: 'asc' },
    take: MAX_GROUPS,
    select: { id: true, name: true },
  });
  const choices = [['email', 'Email'], ['push', 'Push'], ...groups.map(({ id, name }) => [id, name])];
  return html`<form class="row" method="post" action="${pathOf(seen)}">
<label>Subscription <select name="subscription">${choices.map(([value, name]) => html`<option value="${value}">${name}</option>`)}</select></label>
<label>State <select name="state">${STATES.map((state) => html`<option value="${state}">${state.replace('_', ' ')}</option>`)}</select></label>
<button name="action" value="set_subscription">Set…</button></form>`;
}

/** Maximum number of preference centers in the form. */
const MAX_CENTERS = 100;

/**
 * Renders the form that creates a link to a preference center; undefined if the viewer may not change users, or if no
 * page is active.
 */
export async function preferenceLinkForm(
  { services, viewer }: Visit<PageServices>,
  seen: Seen,
): Promise<Part> {
  if (!viewer.can('change', seen.workspace.id)) return undefined;
  const centers = await services.database.prisma.preferenceCenter.findMany({
    where: { workspaceId: seen.workspace.id, state: 'active' },
    orderBy: { name: 'asc' },
    take: MAX_CENTERS,
    select: { id: true, name: true },
  });
  if (centers.length === 0) return undefined;
  const path = pathWith(`/users/${toServiceId(seen.id)}/preference-link`, { workspace: seen.workspace.id });
  return html`<form class="row" method="post" action="${path}">
<label>Preference center <select name="center">${centers.map(({ id, name }) => html`<option value="${id}">${name}</option>`)}</select></label>
<button>Create link</button></form>`;
}

const preferenceLink: Page<PageServices> = {
  method: 'post',
  path: '/users/:service_id/preference-link',
  right: 'change',
  async handle(visit) {
    const { services, viewer, actor, field } = visit;
    const { database, config } = services;
    const seen = await findUser(visit);
    const workspaceId = seen.workspace.id;
    // The link shows and changes states without a sign-in, so it needs both rights.
    if (!viewer.can('users', workspaceId)) throw lacking('users');
    const centerId = field('center');
    if (!isUuid(centerId)) throw new PageError(400, 'Choose a preference center.');
    const center = await database.prisma.preferenceCenter.findFirst({
      where: { workspaceId, id: centerId, state: 'active' },
      select: { id: true, name: true },
    });
    if (!center) throw new PageError(404, 'Preference center not found, or it is a draft.');
    const [user] = await readProfiles(database.pool, workspaceId, { ids: [seen.id], fields: [] });
    if (!user) throw new PageError(404, 'This user has just been deleted.');
    const back = userPath(viewer, { id: seen.id, workspaceId });
    if (user.email === null)
      throw new PageError(400, 'The user has no email address. A preference center needs one.');
    const subject = { kind: 'user', id: toServiceId(seen.id) };
    await recordAudit(database.pool, actor, [
      { action: 'users.preference_link', subject, workspaceId, detail: { preference_center: center.id } },
    ]);
    const links = createLinkSettings(config);
    const madeAt = now();
    const link = { workspaceId, centerId: center.id, profileId: seen.id, madeAt };
    const secret = await requireLinkKey(database, workspaceId);
    const url = links.urlOf(signLink({ ...link, expiresAt: madeAt + links.days * DAY_MS }, secret));
    const body = html`<h1>Link to ${center.name}</h1>
<p class="lead">For ${headingOf(user, seen.pii)}. Everyone who has the link can see and change the subscriptions of this user. It is valid for ${links.days} days, unless it is revoked with <code>penstock preference-centers revoke</code>.</p>
<div class="row card" data-copy="${url}"><label class="grow">Link <input readonly value="${url}"></label></div>
<p><a href="${back}">Back to the user</a></p>`;
    return { title: 'Link to a preference center', body };
  },
};

const DAY_MS = 86_400_000;

/**
 * Renders the form that sets or removes an attribute; undefined if the viewer may not change users or see values.
 * @param refused the form that was sent, and the reason of its refusal
 */
export function attributeForm(
  { viewer }: Visit<PageServices>,
  seen: Seen,
  refused?: { field: Visit<PageServices>['field']; reason: Refusal },
): Part {
  if (!viewer.can('change', seen.workspace.id) || !seen.pii) return undefined;
  const sent = (name: string) => refused?.field(name) ?? '';
  const problem = (name: string) =>
    refused?.reason.field === name &&
    html` <strong class="problem" id="${name}-problem" role="alert">${refused.reason.message}</strong>`;
  const marks = (name: string) =>
    refused?.reason.field === name && html` aria-invalid="true" aria-describedby="${name}-problem"`;
  return html`<details class="card create"${refused && html` open`}><summary>Set or remove an attribute</summary>
<form class="row" method="post" action="${pathOf(seen)}">
<label>Attribute <input name="attribute" value="${sent('attribute')}" maxlength="255" required autocomplete="off"${marks('attribute')}>${problem('attribute')}</label>
<label>Type <select name="type">${TYPES.map((type) => html`<option value="${type}"${type === sent('type') && html` selected`}>${type}</option>`)}</select></label>
<label class="grow">Value <input name="value" value="${sent('value')}" maxlength="2000" autocomplete="off"${marks('value')}>${problem('value')}</label>
<button name="action" value="set_attribute">Set…</button> <button name="action" value="remove_attribute">Remove…</button></form></details>`;
}

const pathOf = ({ id, workspace }: Seen) =>
  pathWith(`/users/${toServiceId(id)}`, { workspace: workspace.id });

interface Wanted {
  /** The members of an `attributes` element in a track request. */
  attributes: Record<string, Json>;
  /** The question that the operator confirms. */
  sentence: string;
  entry: Pick<AuditEntry, 'action' | 'detail'>;
}

/**
 * @throws {Refusal} if a field of the attribute form breaks its rule
 * @throws {PageError} naming another field and its rule
 */
function readChange({ field, services }: Visit<PageServices>): Wanted {
  const { SERVICE_ID_FIELD } = services.config;
  switch (field('action')) {
    case 'set_subscription': {
      const [subscription, state] = [field('subscription'), field('state')];
      if (!STATES.some((one) => one === state))
        throw new PageError(400, `'state' must be one of: ${STATES.join(', ')}.`);
      const isGlobal = subscription === 'email' || subscription === 'push';
      if (!isGlobal && !isUuid(subscription))
        throw new PageError(400, "'subscription' must be email, push or the id of a group of the workspace.");
      const groupState = state === 'unsubscribed' ? state : 'subscribed';
      const group = { subscription_group_id: subscription, subscription_state: groupState };
      return {
        attributes: isGlobal ? { [`${subscription}_subscribe`]: state } : { subscription_groups: [group] },
        sentence: `Set ${isGlobal ? subscription : 'the group'} to ${isGlobal ? state : groupState}?`,
        entry: { action: 'users.set_subscription', detail: { subscription, state } },
      };
    }
    case 'set_attribute': {
      const name = readAttribute(field('attribute'), SERVICE_ID_FIELD);
      const value = readValue(field('type'), field('value'));
      return {
        attributes: { [name]: value },
        sentence: `Set the attribute ${name} to ${JSON.stringify(value)}?`,
        // The value is not recorded, because it may be personal data.
        entry: { action: 'users.set_attribute', detail: { attribute: name } },
      };
    }
    case 'remove_attribute': {
      const name = readAttribute(field('attribute'), SERVICE_ID_FIELD);
      return {
        attributes: { [name]: null },
        sentence: `Remove the attribute ${name}?`,
        entry: { action: 'users.set_attribute', detail: { attribute: name, removed: true } },
      };
    }
    default:
      throw new PageError(400, "'action' must be set_subscription, set_attribute or remove_attribute.");
  }
}

/** Matches members of a track request that are not custom attributes or that identify the user. */
const RESERVED = /^(?:external_id|user_alias|email|phone|subscription_groups|push_tokens|_.*)$/;

function readAttribute(text: string, serviceIdField: string): string {
  const name = text.trim();
  if (name === '' || name.length > 255)
    throw new Refusal('The name of an attribute must have 1 to 255 characters.', 'attribute');
  if (RESERVED.test(name) || name === serviceIdField)
    throw new Refusal(
      `The attribute cannot be ${name.slice(0, 80)}. Use the API to change identifiers.`,
      'attribute',
    );
  return name;
}

function readValue(type: string, text: string): Json {
  switch (type) {
    case 'text':
      return text;
    case 'number': {
      const number = Number(text);
      if (text.trim() === '' || !Number.isFinite(number))
        throw new Refusal('The value must be a number.', 'value');
      return number;
    }
    case 'true or false': {
      if (text !== 'true' && text !== 'false') throw new Refusal('The value must be true or false.', 'value');
      return text === 'true';
    }
    case 'JSON':
      try {
        return JSON.parse(text) as Json;
      } catch {
        throw new Refusal('The value must be JSON, for example [1, 2].', 'value');
      }
    default:
      throw new PageError(400, `'type' must be one of: ${TYPES.join(', ')}.`);
  }
}

/**
 * Validates the change with the rules of a track request. A value that the API would shorten or omit with a warning is
 * refused, because the user of the console would not see the warning.
 * @throws {Refusal} naming the rule that it breaks
 */
async function plan(
  { services }: Visit<PageServices>,
  { workspace, id }: Seen,
  { attributes, requestId }: { attributes: Record<string, Json>; requestId: string },
): Promise<AcceptedObject[]> {
  const { SERVICE_ID_FIELD } = services.config;
  const [group] = (attributes.subscription_groups ?? []) as { subscription_group_id: string }[];
  const existing = group && (await findGroup(services, workspace.id, group.subscription_group_id));
  const caller = {
    ...{ workspaceId: workspace.id, requestId, now: now() },
    ...{ hasGroup: (one: string) => one === existing?.id, isBlocked: () => false },
  } as unknown as Caller;
  const element = { ...attributes, _update_existing_only: true, [SERVICE_ID_FIELD]: toServiceId(id) };
  const { objects, reply } = planOf(services.operations.track, caller, element);
  const { warnings: [warning] = [] } = reply.body as { warnings?: { type: string }[] };
  if (warning) throw new Refusal(sentence(warning.type), 'value');
  return objects;
}

function planOf({ plan: planned }: QueuedOperation, caller: Caller, element: Record<string, Json>): Plan {
  try {
    return planned(caller, { attributes: [element] });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw new Refusal(sentence(String(error.rejected[0]?.type ?? error.message)), 'value');
  }
}

const findGroup = ({ database: { prisma } }: PageServices, workspaceId: string, id: string) =>
  prisma.subscriptionGroup.findFirst({ where: { id, workspaceId }, select: { id: true } });

/** Milliseconds that a form waits until its change is applied. */
const APPLY_MS = 1500;

const change: Page<PageServices> = {
  method: 'post',
  path: '/users/:service_id',
  right: 'change',
  async handle(visit) {
    const { services, viewer, field } = visit;
    const seen = await findUser(visit);
    if (!viewer.can('users', seen.workspace.id)) throw lacking('users');
    const isAttribute = field('action').endsWith('_attribute');
    if (isAttribute && !seen.pii) throw lacking('pii');
    const requestId = newId();
    let wanted: Wanted;
    let objects: AcceptedObject[];
    try {
      wanted = readChange(visit);
      objects = await plan(visit, seen, { attributes: wanted.attributes, requestId });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (!isAttribute) throw new PageError(400, error.message);
      const body = html`<h1>Change a user</h1>${attributeForm(visit, seen, { field, reason: error })}`;
      return { title: 'Change a user', status: 400, body };
    }
    if (field('confirm') !== 'yes') return confirmation(visit, seen, wanted);
    const envelopeIds = await enqueue(visit, seen, { requestId, objects, entry: wanted.entry });
    // An idle worker applies the change meanwhile, so that the page shows the new state without script.
    await services.effects.awaited(envelopeIds, APPLY_MS);
    return { to: changedPath(seen, requestId) };
  },
};

/** Asks for confirmation before a change, because clients of the workspace will see the change. */
async function confirmation(
  visit: Visit<PageServices>,
  seen: Seen,
  { sentence, entry }: Wanted,
): Promise<Reply> {
  const { field, services, viewer } = visit;
  const [user] = await readProfiles(services.database.pool, seen.workspace.id, {
    ids: [seen.id],
    fields: [],
  });
  if (!user) throw new PageError(404, 'This user has just been deleted.');
  const kept = ['action', 'subscription', 'state', 'attribute', 'type', 'value'];
  const body = html`<h1>${sentence}</h1>
<p class="lead">User ${headingOf(user, seen.pii)}. The change takes effect after everything that was accepted before.${entry.action === 'users.set_subscription' && ' A state of a group belongs to the email address or phone number, and so to each user who has it.'}</p>
<form class="card" method="post" action="${pathOf(seen)}">${kept.map((name) => field(name) !== '' && html`<input type="hidden" name="${name}" value="${field(name)}">`)}
<p class="actions"><button class="main" name="confirm" value="yes">Confirm</button> <a class="button" href="${userPath(viewer, { id: seen.id, workspaceId: seen.workspace.id })}">Cancel</a></p></form>`;
  return { title: 'Change a user', body };
}

/** Finds the user to delete, and the words of which the operator has to type one. */
async function findForDelete(visit: Visit<PageServices>): Promise<Seen & { path: string; words: string[] }> {
  const seen = await findUser(visit);
  if (!visit.viewer.can('users', seen.workspace.id)) throw lacking('users');
  const serviceId = toServiceId(seen.id);
  const [user] = await readProfiles(visit.services.database.pool, seen.workspace.id, {
    ...{ ids: [seen.id], fields: [] },
  });
  // The external id or the email address. Viewers who may not see them type the service id. The typed text is trimmed,
  // so an id with white space at its ends could not be typed.
  const named = seen.pii ? [user?.external_id, user?.email] : [];
  const words = [...named.filter((one) => typeof one === 'string'), serviceId].filter(
    (one) => one === one.trim(),
  );
  const several = visit.viewer.workspacesWith('users').length > 1;
  return {
    ...seen,
    words,
    path: pathWith(`/users/${serviceId}/delete`, several ? { workspace: seen.workspace.id } : {}),
  };
}

function form({
  path,
  words,
  back,
  problem,
}: {
  path: string;
  words: string[];
  back: string;
  problem?: string;
}) {
  const body = html`<h1>Delete this user?</h1>
<p class="lead">The profile, its events, purchases, devices and identifiers, and dead letters about it are deleted permanently. The delete takes effect after everything that was accepted before, like <code>POST /users/delete</code>.</p>
${problem !== undefined && html`<p class="banner bad" role="alert">${problem}</p>`}
<form class="stack card" method="post" action="${path}">
<label>Type ${words.join(' or ')} to confirm <input name="confirm" autocomplete="off" spellcheck="false" data-word="${words[0]}" data-also="${words.slice(1).join('\n')}" required></label>
<p class="actions"><button class="danger">Delete permanently</button> <a class="button" href="${back}">Cancel</a></p>
</form>`;
  return { title: 'Delete a user', body, ...(problem !== undefined && { status: 400 }) };
}

const removal: Page<PageServices> = {
  method: 'get',
  path: '/users/:service_id/delete',
  right: 'change',
  async handle(visit) {
    const { path, words, id, workspace } = await findForDelete(visit);
    return form({ path, words, back: userPath(visit.viewer, { id, workspaceId: workspace.id }) });
  },
};

const remove: Page<PageServices> = {
  method: 'post',
  path: '/users/:service_id/delete',
  right: 'change',
  async handle(visit) {
    const { services, viewer, field } = visit;
    const seen = await findForDelete(visit);
    const { path, words, id, workspace } = seen;
    if (!words.includes(field('confirm').trim())) {
      const back = userPath(viewer, { id, workspaceId: workspace.id });
      const problem = `The text does not match ${words[0]}. The user was not deleted.`;
      return form({ path, words, back, problem });
    }
    const { config, operations } = services;
    const requestId = newId();
    const caller = { workspaceId: workspace.id, requestId } as unknown as Caller;
    const { objects } = operations.remove.plan(caller, {
      [`${config.SERVICE_ID_FIELD}s`]: [toServiceId(id)],
    });
    await enqueue(visit, seen, { requestId, objects, entry: { action: 'users.delete' } });
    return viewer.can('delivery', workspace.id)
      ? { to: pathWith(`/requests/${requestId}`, { workspace: workspace.id }) }
      : { to: '/users?done=deleted' };
  },
};

export const userActionPages = [exported, change, preferenceLink, removal, remove];
