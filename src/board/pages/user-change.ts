import { followRequest } from '../../operations/requests/follow.ts';
import { now } from '../../platform/clock.ts';
import { html, type Part } from '../../platform/html.ts';
import { millisecondsOf } from '../../platform/ids.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { isUuid } from '../../profile/values.ts';
import { QueueUnavailable } from '../../queue/lanes.ts';
import { searchAudit } from '../../store/audit-list.ts';
import type { PageServices, Visit } from '../console.ts';
import { pathWith } from '../layout.ts';
import type { Seen } from './find-user.ts';

/** Seconds for which the page of a user loads again after a change, and seconds between two loads. */
const FOLLOWED_SECONDS = 20;
const REFRESH_SECONDS = 2;

/** Milliseconds between the id of a request and its audit entry. */
const AUDIT_DELAY_MS = 60_000;

/** Maximum number of changes of the user in this time. */
const MAX_ENTRIES = 100;

/** A change that was made on the page of a user, from its audit entry. */
export interface UserChange {
  requestId: string;
  status: 'accepted' | 'applied' | 'failed';
  /** `email`, `push` or the id of a group, and its new state; absent if an attribute was changed. */
  subscription?: { id: string; state: string };
  /** Name of the attribute, and whether it is removed; absent if a subscription was set. */
  attribute?: { name: string; isRemoved: boolean };
  /** Seconds after which the page is loaded again; absent if the change has ended or takes long. */
  refresh?: number;
  /** Address of the page that follows the change. */
  path: string;
}

/** Returns the address of the page of a user that follows a change. */
export const changedPath = ({ id, workspace }: Seen, requestId: string) =>
  pathWith(`/users/${toServiceId(id)}`, { workspace: workspace.id, change: requestId });

/** Returns the change that the query names; undefined if the change concerns another user or is no longer stored. */
export async function followChange(
  { services, query }: Visit<PageServices>,
  seen: Seen,
): Promise<UserChange | undefined> {
  const requestId = query('change').toLowerCase();
  if (!isUuid(requestId)) return undefined;
  const at = millisecondsOf(requestId);
  if (at > now() + AUDIT_DELAY_MS) return undefined;
  const { rows } = await searchAudit(services.database.pool, {
    ...{ subject: toServiceId(seen.id), limit: MAX_ENTRIES },
    ...{ from: new Date(at), to: new Date(at + AUDIT_DELAY_MS) },
  });
  const entry = rows.find(
    ({ workspaceId, detail }) => workspaceId === seen.workspace.id && detail.request_id === requestId,
  );
  if (!entry) return undefined;
  // The page of the user needs no queue, so it is shown without one.
  const followed = await followRequest(services, seen.workspace.id, requestId).catch((error: unknown) => {
    if (error instanceof QueueUnavailable) return undefined;
    throw error;
  });
  const isYoung = now() - at < FOLLOWED_SECONDS * 1000;
  // A job can be between its lane and the ledger.
  if (!followed && !isYoung) return undefined;
  const objects = followed?.objects ?? [{ status: 'accepted' as const }];
  const status = (['failed', 'accepted'] as const).find((one) =>
    objects.some((object) => object.status === one),
  );
  const { action, detail } = entry;
  return {
    ...{ requestId, status: status ?? 'applied', path: changedPath(seen, requestId) },
    ...(action === 'users.set_subscription' && {
      subscription: { id: String(detail.subscription), state: String(detail.state) },
    }),
    ...(action === 'users.set_attribute' && {
      attribute: { name: String(detail.attribute), isRemoved: detail.removed === true },
    }),
    ...(status === 'accepted' && isYoung && { refresh: REFRESH_SECONDS }),
  };
}

/** Renders the state of a change at the top of the page; undefined if it was applied. */
export function changeBanner({ status, refresh, path }: UserChange): Part {
  if (status === 'applied') return undefined;
  if (status === 'failed')
    return html`<p class="banner bad" role="alert">The change failed. The reason is under <a href="#letters">Dead letters</a>.</p>`;
  const next =
    refresh === undefined
      ? html`<a href="${path}">Reload the page</a> to see it.`
      : html`The page updates itself for ${FOLLOWED_SECONDS} s. Without script, <a href="${path}">reload it</a>.`;
  return html`<p class="banner warn" role="status">The change was accepted and is being applied. ${next}</p>`;
}

/** Renders the note at the row of a change that is being applied; undefined for other changes. */
export function pendingNote(change: UserChange | undefined, subscription?: string): Part {
  if (change?.status !== 'accepted') return undefined;
  const link = html`<a href="${change.path}">reload</a>`;
  if (subscription !== undefined)
    return (
      change.subscription?.id === subscription &&
      html` <span class="faint">${stateOf(change.subscription)} is being applied; ${link}</span>`
    );
  const { attribute } = change;
  return (
    attribute &&
    html`<p class="faint pager"><code>${attribute.name}</code> is being ${attribute.isRemoved ? 'removed' : 'set'}; ${link}</p>`
  );
}

/** Returns the state as the page shows it. */
export function stateOf({ id, state }: { id: string; state: string }): string {
  return isUuid(id) && state === 'opted_in' ? 'subscribed' : state;
}
