import { toUserObject, userFields } from '../../operations/export/user-fields.ts';
import type { Caller } from '../../operations/operation.ts';
import { usersDelete } from '../../operations/users.delete.ts';
import { nowDate } from '../../platform/clock.ts';
import { html, type Part } from '../../platform/html.ts';
import { newId } from '../../platform/ids.ts';
import { presentTrace } from '../../platform/tracing.ts';
import { type Identifier, toProfileId, toServiceId } from '../../profile/identifier.ts';
import { recordAudit } from '../../store/audit.ts';
import { identifierText } from '../../store/dead-letters.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import { selectLettersOfUser } from '../../store/named-failures.ts';
import { findKeptProfile } from '../../store/preference-centers.ts';
import { searchUsers } from '../../store/profile-search.ts';
import type { HistorySubject } from '../../store/subscription-history.ts';
import { MAX_MERGED, selectMerged, selectRenamed } from '../../store/timeline.ts';
import type { Viewer, Workspace } from '../access.ts';
import { chosenWorkspace, lacking, type Page, type PageServices, Sorry, type Visit } from '../console.ts';
import { badge, empty, MASK, moment, nextPage, pathWith, table } from '../layout.ts';
import {
  attributes,
  devices,
  MOST,
  MOST_RENAMED,
  names,
  profile,
  readEntries,
  subscriptions,
  summaries,
  timeline,
} from './user-facts.ts';
import { shownExternalId, userPath } from './users.ts';

const SERVICE_ID = /^[0-9a-f]{24}$/;

/** Dead letters about the user that are shown. */
const LETTERS = 10;

/** A user, and the workspace in which the viewer may look at this one. */
interface Seen {
  workspace: Workspace;
  /** The profile's UUID. */
  id: string;
  /** Whether the viewer may see who it is. */
  pii: boolean;
}

/**
 * The user of the address. One who was merged is whoever took this one in.
 * @throws {Sorry} when there is none in a workspace of the viewer's
 */
async function findUser({
  services,
  viewer,
  workspaces,
  findWorkspace,
  params,
  query,
}: Visit<PageServices>): Promise<Seen> {
  const nobody = new Sorry(404, 'User not found in your workspaces. Deleted users cannot be restored.');
  const given = params.service_id ?? '';
  if (!SERVICE_ID.test(given)) throw nobody;
  const { pool } = services.database;
  const id = toProfileId(given);
  const chosen = await chosenWorkspace({ findWorkspace, query });
  const among = chosen ? [chosen] : workspaces;
  const [found] = await searchUsers(
    pool,
    among.map((one) => one.id),
    { search: { id }, limit: 1 },
  );
  let workspace = among.find((one) => one.id === found?.workspaceId);
  let present = found?.id;
  // Who is not there may have been merged: few have more workspaces than one to look into.
  for (const one of workspace ? [] : among.slice(0, MOST)) {
    present = await findKeptProfile(pool, one.id, id);
    workspace = present === undefined ? undefined : one;
    if (workspace) break;
  }
  if (!workspace || present === undefined) throw nobody;
  return { workspace, id: present, pii: viewer.can('pii', workspace.id) };
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/users/:service_id',
  right: 'users',
  async handle(visit) {
    const { services, viewer, params, query } = visit;
    const { pool } = services.database;
    const seen = await findUser(visit);
    const { workspace, id, pii } = seen;
    if (toServiceId(id) !== params.service_id)
      return { to: userPath(viewer, { id, workspaceId: workspace.id }) };
    const [[user], merged, renamed] = await Promise.all([
      readProfiles(pool, workspace.id, {
        ids: [id],
        fields: [
          ...['custom_attributes', 'user_aliases', 'push_tokens', 'custom_events', 'purchases'],
          ...['apps', 'revenue', 'subscription_groups'],
        ],
      }),
      selectMerged(pool, workspace.id, id),
      selectRenamed(pool, { workspaceId: workspace.id, profileId: id, limit: MOST_RENAMED + 1 }),
    ]);
    if (!user) throw new Sorry(404, 'This user has just been deleted.');
    const subjects = subjectsOf(user);
    const [entries, letters] = await Promise.all([
      readEntries(services, {
        workspace,
        owners: [id, ...merged.slice(0, MAX_MERGED).map((one) => one.id)],
        subjects,
        query,
      }),
      selectLettersOfUser(pool, workspace.id, {
        names: namesOf(user),
        limit: LETTERS + 1,
        before: /^\d{1,18}$/.test(query('letters_before')) ? query('letters_before') : undefined,
      }),
    ]);
    const title = user.external_id === null ? toServiceId(id) : shownExternalId(user.external_id, pii);
    const self = userPath(viewer, { id, workspaceId: workspace.id });
    const path = self.split('?')[0]!;
    const other = (asked: Record<string, string>) =>
      `${pathWith(path, { workspace: query('workspace'), ...asked })}#${Object.keys(asked)[0]!.split('_')[0]}`;
    const sliceOf = (list: string) => ({
      from: /^\d{1,6}$/.test(query(`${list}_from`)) ? Number(query(`${list}_from`)) : 0,
      path: (from: number) => other({ [`${list}_from`]: String(from) }),
    });
    const isMore = letters.length > LETTERS;
    const body = html`<h1>${title}</h1>
<p class="lead">User of the workspace ${workspace.name} · service id <span class="id">${toServiceId(id)}</span></p>
${actions(viewer, seen)}
${profile(user, pii)}
<h2>Custom attributes</h2>${attributes(user, pii)}
<h2>Subscriptions</h2>${subscriptions(user)}
<h2 id="names">Names</h2>${names({ user, merged, renamed, pii, slice: sliceOf('names') })}
<h2 id="devices">Devices</h2>${devices(user, pii, sliceOf('devices'))}
<h2 id="counted">What was counted</h2>${summaries(user, sliceOf('counted'))}
<h2 id="letters">Dead letters</h2>${
      letters.length === 0
        ? empty('None', 'Everything that was accepted for this user could be applied.')
        : table(
            'Dead letters about the user',
            ['Kind', 'Reason', 'State', 'Failed'],
            letters
              .slice(0, LETTERS)
              .map((letter) => [
                viewer.can('delivery', workspace.id)
                  ? html`<a href="/dead-letters/${letter.id}">${letter.kind}</a>`
                  : letter.kind,
                pii ? letter.reason : MASK,
                badge(letter.state, letter.state === 'waiting' ? 'bad' : 'calm'),
                moment(letter.failedAt),
              ]),
          )
    }
${isMore && html`<p class="pager"><a href="${other({ letters_before: letters[LETTERS - 1]!.place })}">Older dead letters</a></p>`}
<h2 id="timeline">Timeline</h2>
${timeline(entries.shown, pii)}
${entries.next && nextPage(path, { workspace: query('workspace'), ...entries.next })}`;
    return { title: typeof title === 'string' ? title : toServiceId(id), body };
  },
};

function actions(viewer: Viewer, { workspace, id, pii }: Seen): Part {
  const path = `/users/${toServiceId(id)}`;
  const where = viewer.workspacesWith('users').length < 2 ? {} : { workspace: workspace.id };
  const mayTake = pii && viewer.can('export', workspace.id);
  const mayDelete = viewer.can('change', workspace.id);
  if (!mayTake && !mayDelete) return undefined;
  return html`<p class="actions">${mayTake && html`<a class="button" href="${pathWith(`${path}/export`, where)}">Export as JSON</a>`}
${mayDelete && html`<a class="button" href="${pathWith(`${path}/delete`, where)}">Delete…</a>`}</p>`;
}

/** The names under which dead letters about a user are kept. */
function namesOf(user: StoredUser): string[] {
  const identifiers: Identifier[] = [
    { service_id: toServiceId(user.id) },
    ...(user.external_id === null ? [] : [{ external_id: user.external_id }]),
    ...(user.user_aliases ?? []).slice(0, MOST).map((user_alias) => ({ user_alias })),
  ];
  return [`u:${user.id}`, ...identifiers.map(identifierText)];
}

/** Whose history of states is this user's: the profile's own, and that of the addresses that it has now. */
function subjectsOf(user: StoredUser): HistorySubject[] {
  return [
    { kind: 'profile', subject: user.id },
    ...(user.email === null ? [] : [{ kind: 'email' as const, subject: user.email }]),
    ...(user.phone === null ? [] : [{ kind: 'phone' as const, subject: user.phone }]),
  ];
}

export const userPages = [show];

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
    if (!user) throw new Sorry(404, 'This user has just been deleted.');
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

/** Where the user is deleted, and the word that has to be typed for it. */
async function findForDelete(visit: Visit<PageServices>): Promise<Seen & { path: string; word: string }> {
  const seen = await findUser(visit);
  if (!visit.viewer.can('users', seen.workspace.id)) throw lacking('users');
  const word = toServiceId(seen.id);
  const several = visit.viewer.workspacesWith('users').length > 1;
  return {
    ...seen,
    word,
    path: pathWith(`/users/${word}/delete`, several ? { workspace: seen.workspace.id } : {}),
  };
}

function form({ path, word, back, problem }: { path: string; word: string; back: string; problem?: string }) {
  const body = html`<h1>Delete this user?</h1>
<p class="lead">The profile, its events, purchases, devices and names, and dead letters about it are gone for good. It takes its turn behind what was accepted before, as <code>POST /users/delete</code> does.</p>
${problem !== undefined && html`<p class="banner bad" role="alert">${problem}</p>`}
<form class="stack card" method="post" action="${path}">
<label>Type the service id ${word} to confirm <input name="confirm" autocomplete="off" spellcheck="false" data-word="${word}" required></label>
<p class="actions"><button class="danger">Delete permanently</button> <a class="button" href="${back}">Keep</a></p>
</form>`;
  return { title: 'Delete a user', body, ...(problem !== undefined && { status: 400 }) };
}

const ask: Page<PageServices> = {
  method: 'get',
  path: '/users/:service_id/delete',
  right: 'change',
  async handle(visit) {
    const { path, word, id, workspace } = await findForDelete(visit);
    return form({ path, word, back: userPath(visit.viewer, { id, workspaceId: workspace.id }) });
  },
};

const remove: Page<PageServices> = {
  method: 'post',
  path: '/users/:service_id/delete',
  right: 'change',
  async handle(visit) {
    const { services, viewer, actor, field } = visit;
    const { path, word, id, workspace } = await findForDelete(visit);
    if (field('confirm').trim() !== word) {
      const back = userPath(viewer, { id, workspaceId: workspace.id });
      return form({ path, word, back, problem: 'The service id does not match. The user was not deleted.' });
    }
    const serviceIdField = services.config.SERVICE_ID_FIELD;
    const requestId = newId();
    const caller = { workspaceId: workspace.id, requestId } as unknown as Caller;
    const { objects } = usersDelete(serviceIdField).plan(caller, { [`${serviceIdField}s`]: [word] });
    const request = {
      request_id: requestId,
      workspace_id: workspace.id,
      accepted_at: nowDate().toISOString(),
      ...presentTrace(),
    };
    // Before it: what is in a lane cannot be taken back. One that never came there is told of as well.
    await recordAudit(services.database.pool, actor, [
      {
        ...{ action: 'users.delete', subject: { kind: 'user', id: word }, workspaceId: workspace.id },
        detail: { request_id: requestId },
      },
    ]);
    await services.queue.enqueue(request, objects, JSON.stringify(objects).length);
    const { log } = services;
    log.info({ request_id: requestId, account_id: viewer.accountId }, 'a user was deleted from the console');
    return viewer.can('delivery', workspace.id)
      ? { to: pathWith(`/requests/${requestId}`, { workspace: workspace.id }) }
      : { to: '/users?done=deleted' };
  },
};

export const userActionPages = [exported, ask, remove];
