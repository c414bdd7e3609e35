import { toUserObject, userFields } from '../../operations/export/user-fields.ts';
import type { Caller } from '../../operations/operation.ts';
import { usersDelete } from '../../operations/users.delete.ts';
import { html } from '../../platform/html.ts';
import { newId } from '../../platform/ids.ts';
import { presentTrace } from '../../platform/tracing.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { recordAudit } from '../../store/audit.ts';
import { readProfiles } from '../../store/export.ts';
import { lacking, type Page, type PageServices, Sorry, type Visit } from '../console.ts';
import { pathWith } from '../layout.ts';
import { findUser, type Seen } from './user.ts';
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
<p class="actions"><button class="danger">Delete for good</button> <a class="button" href="${back}">Keep</a></p>
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
      return form({ path, word, back, problem: 'That is not the service id. Nothing was deleted.' });
    }
    const serviceIdField = services.config.SERVICE_ID_FIELD;
    const requestId = newId();
    const caller = { workspaceId: workspace.id, requestId } as unknown as Caller;
    const { objects } = usersDelete(serviceIdField).plan(caller, { [`${serviceIdField}s`]: [word] });
    const request = {
      request_id: requestId,
      workspace_id: workspace.id,
      accepted_at: new Date().toISOString(),
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
