import { html, type Part } from '../../platform/html.ts';
import { takePage } from '../../platform/paging.ts';
import { type Identifier, identifierText, toServiceId } from '../../profile/identifier.ts';
import { isUuid } from '../../profile/values.ts';
import { identifiersOf } from '../../resources/user-identifiers.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import { selectDeadLettersOfUser } from '../../store/named-failures.ts';
import type { HistorySubject } from '../../store/subscription-history.ts';
import { MAX_MERGED, selectMerged, selectRenamed } from '../../store/timeline.ts';
import { inReadOnly } from '../../store/transactions.ts';
import type { Viewer } from '../access.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { badge, empty, MASK, moment, pathWith, table } from '../layout.ts';
import { findUser, headingOf, type Seen } from './find-user.ts';
import { attributeForm, preferenceLinkForm, subscriptionForm } from './user-actions.ts';
import { changeBanner, followChange, type UserChange } from './user-change.ts';
import {
  attributes,
  devices,
  LIST_PAGE,
  MAX_RENAMED_IDS,
  names,
  profile,
  subscriptions,
  summaries,
} from './user-facts.ts';
import { readAuthors, readTimeline, timeline } from './user-timeline.ts';
import { shownExternalId, userPath } from './users.ts';

/** Maximum number of dead letters shown for the user. */
const LETTERS = 10;

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
    const self = userPath(viewer, { id, workspaceId: workspace.id });
    const path = self.split('?')[0]!;
    // The change is read first, so that the page never reports an applied change with the state before it.
    const change = await followChange(visit, seen);
    const { user, merged, renamed, letters, part } = await inReadOnly(pool, async (connection) => {
      const [[user], merged, renamed] = await Promise.all([
        readProfiles(connection, workspace.id, {
          ids: [id],
          fields: [
            ...['custom_attributes', 'user_aliases', 'push_tokens', 'custom_events', 'purchases'],
            ...['apps', 'revenue', 'subscription_groups'],
          ],
        }),
        selectMerged(connection, workspace.id, id),
        selectRenamed(connection, { workspaceId: workspace.id, profileId: id, limit: MAX_RENAMED_IDS + 1 }),
      ]);
      if (!user) throw new PageError(404, 'This user has just been deleted.');
      const kept = merged.slice(0, MAX_MERGED);
      const [letters, part] = await Promise.all([
        selectDeadLettersOfUser(connection, workspace.id, {
          names: namesOf(user),
          limit: LETTERS + 1,
          before: /^\d{1,18}$/.test(query('letters_before')) ? query('letters_before') : undefined,
        }),
        readTimeline(connection, {
          ...{ seen, subjects: subjectsOf(user), renamed, query, merged: kept, names: namesOf(user) },
          owners: [id, ...kept.map((one) => one.id)],
          identifiers: identifiersOf(user, { merged, renamed }),
        }),
      ]);
      return { user, merged, renamed, letters, part };
    });
    const authors = await readAuthors(pool, { seen, viewer }, part);
    const title = headingOf(user, pii);
    const other = (parameters: Record<string, string>) =>
      `${pathWith(path, { workspace: query('workspace'), ...parameters })}#${Object.keys(parameters)[0]!.split('_')[0]}`;
    const sliceOf = (list: string) => ({
      from: /^\d{1,6}$/.test(query(`${list}_from`)) ? Number(query(`${list}_from`)) : 0,
      path: (from: number) => other({ [`${list}_from`]: String(from) }),
    });
    const { rows: shownLetters, next: olderLetters } = takePage(letters, LETTERS, ({ place }) => place);
    const body = html`<h1>${title}</h1>
<p class="lead">User of the workspace ${workspace.name} · external id <span class="id">${shownExternalId(user.external_id, pii)}</span> · service id <span class="id">${toServiceId(id)}</span></p>
${change && changeBanner(change)}
${actions(viewer, seen)}
<div class="columns"><div>
<h2 id="timeline">Timeline</h2>
${timeline(part, { seen, viewer, query, path, authors })}
<h2 id="letters">Dead letters</h2>${
      letters.length === 0
        ? empty('None', 'Everything that was accepted for this user could be applied.')
        : table(
            'Dead letters about the user',
            ['Kind', 'Reason', 'State', 'Failed'],
            shownLetters.map((letter) => [
              viewer.can('delivery', workspace.id)
                ? html`<a href="/dead-letters/${letter.id}">${letter.kind}</a>`
                : letter.kind,
              pii ? letter.reason : MASK,
              badge(letter.state, letter.state === 'waiting' ? 'bad' : 'calm'),
              moment(letter.failedAt),
            ]),
          )
    }
${olderLetters !== null && html`<p class="pager"><a href="${other({ letters_before: olderLetters })}">Older dead letters</a></p>`}
</div><div>
<h2>Profile</h2>${profile(user, pii)}
<h2>Subscriptions</h2>${subscriptions(user, change, await newGroupOf(visit, seen, { user, change }))}${await subscriptionForm(visit, seen)}${await preferenceLinkForm(visit, seen)}
<h2>Custom attributes</h2>${attributes(user, pii, { change, form: attributeForm(visit, seen) })}
<h2 id="names">Other identifiers</h2>${names({ user, merged, renamed, pii, slice: sliceOf('names') })}
<h2 id="devices">Devices</h2>${devices(user, pii, sliceOf('devices'))}
<h2 id="counted">Totals</h2>${summaries(user, sliceOf('counted'))}
</div></div>`;
    return {
      ...{ title, body },
      ...(change?.refresh !== undefined && { refresh: change.refresh }),
      ...(change?.status === 'applied' && { notice: 'The change was applied.' }),
    };
  },
};

/** Returns the group of a pending change, if the user has no state in it yet. */
async function newGroupOf(
  { services }: Visit<PageServices>,
  { workspace }: Seen,
  { user, change }: { user: StoredUser; change: UserChange | undefined },
) {
  const id = change?.status === 'accepted' ? change.subscription?.id : undefined;
  if (id === undefined || !isUuid(id) || user.subscription_groups?.some((group) => group.id === id))
    return undefined;
  const group = await services.database.prisma.subscriptionGroup.findFirst({
    where: { id, workspaceId: workspace.id },
    select: { id: true, name: true, channel: true },
  });
  return group ?? undefined;
}

function actions(viewer: Viewer, { workspace, id, pii }: Seen): Part {
  const path = `/users/${toServiceId(id)}`;
  const where = viewer.workspacesWith('users').length < 2 ? {} : { workspace: workspace.id };
  const mayFollow = viewer.can('delivery', workspace.id);
  const mayTake = pii && viewer.can('export', workspace.id);
  const mayDelete = viewer.can('change', workspace.id);
  if (!mayFollow && !mayTake && !mayDelete) return undefined;
  const requests = pathWith('/requests', { workspace: workspace.id, user: toServiceId(id) });
  return html`<p class="actions">${mayFollow && html`<a class="button" href="${requests}">Requests</a>`}
${mayTake && html`<a class="button" href="${pathWith(`${path}/export`, where)}">Export as JSON</a>`}
${mayDelete && html`<a class="button" href="${pathWith(`${path}/delete`, where)}">Delete…</a>`}</p>`;
}

/** Returns the names under which dead letters of a user are stored. */
function namesOf(user: StoredUser): string[] {
  const identifiers: Identifier[] = [
    { service_id: toServiceId(user.id) },
    ...(user.external_id === null ? [] : [{ external_id: user.external_id }]),
    ...(user.user_aliases ?? []).slice(0, LIST_PAGE).map((user_alias) => ({ user_alias })),
  ];
  return [`u:${user.id}`, ...identifiers.map(identifierText)];
}

/** Returns the subjects whose state history is shown: the profile, and its current email address and phone number. */
function subjectsOf(user: StoredUser): HistorySubject[] {
  return [
    { kind: 'profile', subject: user.id },
    ...(user.email === null ? [] : [{ kind: 'email' as const, subject: user.email }]),
    ...(user.phone === null ? [] : [{ kind: 'phone' as const, subject: user.phone }]),
  ];
}

export const userPages = [show];
