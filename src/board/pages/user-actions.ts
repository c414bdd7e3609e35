import { toUserObject, userFields } from '../../operations/export/user-fields.ts';
import type { Caller } from '../../operations/operation.ts';
import { html, type Part } from '../../platform/html.ts';
import { newId } from '../../platform/ids.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { InvalidValue, Refusal } from '../../resources/refusal.ts';
import {
  applyToUser,
  type PreparedChange,
  preferenceLink as preferenceLinkAction,
  STATES,
  TYPES,
  type UserChange,
  userChanges,
} from '../../resources/users.ts';
import { recordAudit } from '../../store/audit.ts';
import { readProfiles } from '../../store/export.ts';
import {
  lacking,
  type Page,
  PageError,
  type PageServices,
  type Reply,
  requirePermit,
  type Visit,
} from '../console.ts';
import { pathWith } from '../layout.ts';
import { sentence } from '../resource-form.ts';
import { contextOf } from '../resource-pages.ts';
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

/** Milliseconds that a form waits until its change is applied. */
const APPLY_MS = 1500;

/** Enqueues a change of a user and logs it. @returns the ids of the envelopes that hold it */
async function applyChange(
  visit: Visit<PageServices>,
  { workspace, id }: Seen,
  change: Omit<PreparedChange, 'question'>,
): Promise<string[]> {
  const { envelopeIds } = await applyToUser(contextOf(visit), { id, workspaceId: workspace.id }, change);
  const { requestId, entry } = change;
  visit.services.log.info(
    { request_id: requestId, account_id: visit.viewer.accountId, action: entry.action },
    'user changed in the console',
  );
  return envelopeIds;
}

/** Maximum number of groups in the form. */
const MAX_GROUPS = 200;

/** A form that was sent, and the reason of its refusal. */
interface RefusedForm {
  field: Visit<PageServices>['field'];
  reason: Refusal;
}

/** Renders the reason of a refusal at its field, and the attributes with which the field refers to it. */
function refusalAt(name: string, refused: RefusedForm | undefined): { problem: Part; marks: Part } {
  if (refused?.reason.field !== name) return { problem: undefined, marks: undefined };
  return {
    problem: html` <strong class="problem" id="${name}-problem" role="alert">${sentence(refused.reason.message)}</strong>`,
    marks: html` aria-invalid="true" aria-describedby="${name}-problem"`,
  };
}

/** Renders the form that sets a subscription; undefined if the viewer may not change users. */
export async function subscriptionForm(
  { services, viewer }: Visit<PageServices>,
  seen: Seen,
  refused?: RefusedForm,
): Promise<Part> {
  const workspaceId = seen.workspace.id;
  if (!viewer.can('change', workspaceId)) return undefined;
  const groups = await services.database.prisma.subscriptionGroup.findMany({
    where: { workspaceId, archivedAt: null },
    orderBy: { name: 'asc' },
    take: MAX_GROUPS,
    select: { id: true, name: true },
  });
  const choices = [['email', 'Email'], ['push', 'Push'], ...groups.map(({ id, name }) => [id, name])];
  const at = (name: string) => refusalAt(name, refused);
  const option = (name: string, value: string, text: string) =>
    html`<option value="${value}"${value === refused?.field(name) && html` selected`}>${text}</option>`;
  return html`<form class="row" method="post" action="${pathOf(seen)}">
<label>Subscription <select name="subscription"${at('subscription').marks}>${choices.map(([value, name]) => option('subscription', value!, name!))}</select>${at('subscription').problem}</label>
<label>State <select name="state" required${at('state').marks}><option value="">Choose…</option>${STATES.map((state) => option('state', state, state.replace('_', ' ')))}</select>${at('state').problem}</label>
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
    const { services, viewer, field } = visit;
    const seen = await findUser(visit);
    const workspaceId = seen.workspace.id;
    requirePermit(visit, preferenceLinkAction.permit, workspaceId);
    const one = { id: seen.id, workspaceId };
    const { secret, row, note } = await preferenceLinkAction
      .run(contextOf(visit), { one, values: { center: field('center') } })
      .catch((error: unknown) => {
        throw error instanceof Refusal ? new PageError(400, sentence(error.message)) : error;
      });
    const [user] = await readProfiles(services.database.pool, workspaceId, { ids: [seen.id], fields: [] });
    if (!user) throw new PageError(404, 'This user has just been deleted.');
    const body = html`<h1>Link to ${row!.preference_center as string}</h1>
<p class="lead">For ${headingOf(user, seen.pii)}. ${note}</p>
<div class="row card" data-copy="${secret!.value}"><label class="grow">Link <input readonly value="${secret!.value}"></label></div>
<p><a href="${userPath(viewer, one)}">Back to the user</a></p>`;
    return { title: 'Link to a preference center', body };
  },
};

/** Renders the form that sets or removes an attribute; undefined if the viewer may not change users or see values. */
export function attributeForm({ viewer }: Visit<PageServices>, seen: Seen, refused?: RefusedForm): Part {
  if (!viewer.can('change', seen.workspace.id) || !seen.pii) return undefined;
  const sent = (name: string) => refused?.field(name) ?? '';
  const at = (name: string) => refusalAt(name, refused);
  return html`<details class="card create"${refused && html` open`}><summary>Set or remove an attribute</summary>
<form class="row" method="post" action="${pathOf(seen)}">
<label>Attribute <input name="attribute" value="${sent('attribute')}" maxlength="255" required autocomplete="off"${at('attribute').marks}>${at('attribute').problem}</label>
<label>Type <select name="type">${Object.entries(TYPES).map(([type, name]) => html`<option value="${type}"${type === sent('type') && html` selected`}>${name}</option>`)}</select></label>
<label class="grow">Value <input name="value" value="${sent('value')}" maxlength="2000" autocomplete="off"${at('value').marks}>${at('value').problem}</label>
<button name="action" value="set_attribute">Set…</button> <button name="action" value="remove_attribute">Remove…</button></form></details>`;
}

const pathOf = ({ id, workspace }: Seen) =>
  pathWith(`/users/${toServiceId(id)}`, { workspace: workspace.id });

/**
 * Reads the fields of a change. A value is not trimmed, because white space at its ends may belong to it.
 * @throws {Refusal} naming the first field that breaks its rule
 */
function readValues({ fields }: UserChange, field: (name: string) => string): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, { read, fallback }]) => {
      try {
        return [name, fallback !== undefined && field(name) === '' ? fallback : read(field(name))];
      } catch (error) {
        throw error instanceof InvalidValue ? new Refusal(error.message, name) : error;
      }
    }),
  );
}

const change: Page<PageServices> = {
  method: 'post',
  path: '/users/:service_id',
  right: 'change',
  async handle(visit) {
    const { field } = visit;
    const seen = await findUser(visit);
    const workspaceId = seen.workspace.id;
    const wanted = Object.hasOwn(userChanges, field('action')) ? userChanges[field('action')] : undefined;
    requirePermit(visit, wanted?.permit ?? ['users', 'change'], workspaceId);
    if (!wanted) throw new PageError(400, `'action' must be one of: ${Object.keys(userChanges).join(', ')}.`);
    let change: PreparedChange;
    try {
      const values = readValues(wanted, field);
      change = await wanted.prepare(contextOf(visit), { one: { id: seen.id, workspaceId }, values });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const refused = { field, reason: error };
      const form =
        'attribute' in wanted.fields
          ? attributeForm(visit, seen, refused)
          : await subscriptionForm(visit, seen, refused);
      const atField = ['attribute', 'value', 'subscription', 'state'].includes(error.field ?? '');
      const body = html`<h1>Change a user</h1>${!atField && html`<p class="banner bad" role="alert">${sentence(error.message)}</p>`}${form}`;
      return { title: 'Change a user', status: 400, body };
    }
    if (field('confirm') !== 'yes') return confirmation(visit, seen, change);
    const envelopeIds = await applyChange(visit, seen, change);
    // An idle worker applies the change meanwhile, so that the page shows the new state without script.
    await visit.services.effects.awaited(envelopeIds, APPLY_MS);
    return { to: changedPath(seen, change.requestId) };
  },
};

/** Asks for confirmation before a change, because clients of the workspace will see the change. */
async function confirmation(
  visit: Visit<PageServices>,
  seen: Seen,
  { question, entry }: PreparedChange,
): Promise<Reply> {
  const { field, services, viewer } = visit;
  const [user] = await readProfiles(services.database.pool, seen.workspace.id, {
    ids: [seen.id],
    fields: [],
  });
  if (!user) throw new PageError(404, 'This user has just been deleted.');
  const kept = ['action', 'subscription', 'state', 'attribute', 'type', 'value'];
  const body = html`<h1>${question}</h1>
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
    await applyChange(visit, seen, { requestId, objects, entry: { action: 'users.delete' } });
    return viewer.can('delivery', workspace.id)
      ? { to: pathWith(`/requests/${requestId}`, { workspace: workspace.id }) }
      : { to: '/users?done=deleted' };
  },
};

export const userActionPages = [exported, change, preferenceLink, removal, remove];
