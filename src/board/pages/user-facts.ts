import { grouped } from '../../platform/format.ts';
import { html, type Part } from '../../platform/html.ts';
import { toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { columnsWith } from '../../profile/standard-columns.ts';
import type { StoredUser } from '../../store/export.ts';
import { MAX_MERGED, type MergedProfile } from '../../store/timeline.ts';
import { badge, brief, count, empty, facts, MASK, moment, table, tree } from '../layout.ts';
import { money } from '../money.ts';
import { pendingNote, type UserChange } from './user-change.ts';
import { shownExternalId } from './users.ts';

/** Renders the parts of a user's page. With `pii` false, they contain no personal data. */

/** Rows per page of each short list: names, devices, kinds of events. */
export const LIST_PAGE = 25;

/** Maximum number of earlier external ids that are read. */
export const MAX_RENAMED_IDS = 1000;

export function profile(user: StoredUser, pii: boolean): Part {
  const mask = (value: Json | undefined): Part =>
    value === null || value === undefined
      ? undefined
      : pii
        ? typeof value === 'object'
          ? brief(value)
          : String(value)
        : MASK;
  const at = (value: Json | undefined) => (typeof value === 'string' ? moment(value) : undefined);
  const named = [user.first_name, user.last_name].filter(Boolean).join(' ');
  const location =
    user.latitude === null || user.longitude === null ? undefined : `${user.latitude}, ${user.longitude}`;
  return html`<div class="card">${facts([
    ['Name', mask(named === '' ? null : named)],
    ...columnsWith(({ label }) => label).map(
      ([name, { label, type, isPersonal }]): [string, Part | undefined] => [
        label!,
        type === 'time' ? at(user[name]) : isPersonal ? mask(user[name]) : (user[name] as string | null),
      ],
    ),
    ['Last place (latitude, longitude)', mask(location)],
    ['Hard bounce', at(user.email_hard_bounced_at)],
    ['Created', at(user.created_at)],
  ])}</div>`;
}

/** @param options.form the form that sets an attribute; empty if the viewer may not set one */
export function attributes(
  user: StoredUser,
  pii: boolean,
  { change, form }: { change: UserChange | undefined; form: Part },
): Part {
  const value = user.custom_attributes ?? {};
  const shown =
    Object.keys(value).length === 0
      ? empty('None', form ? 'Set one in the form below.' : 'Attributes appear here when a client sets one.')
      : html`<div class="card">${tree(value, { masked: !pii })}</div>`;
  return html`${shown}${pendingNote(change)}${form}`;
}

const toneOf = (state: string) => (/unsubscribed/i.test(state) ? 'bad' : 'good');

/** @param newGroup the group of the change, if the user has no state in it yet */
export function subscriptions(
  user: StoredUser,
  change: UserChange | undefined,
  newGroup: { id: string; name: string; channel: string } | undefined,
): Part {
  const state = (id: string, text: string) => html`${badge(text, toneOf(text))}${pendingNote(change, id)}`;
  const rows: Part[][] = [
    ['Email', 'email', state('email', user.email_subscribe)],
    ['Push', 'push', state('push', user.push_subscribe)],
    ...(user.subscription_groups ?? []).map(({ id, name, channel, status }) => [
      name,
      channel,
      state(id, status.toLowerCase()),
    ]),
    ...(newGroup ? [[newGroup.name, newGroup.channel, pendingNote(change, newGroup.id)]] : []),
  ];
  return html`${table('States of subscriptions', ['Subscription', 'Channel', 'State'], rows)}
<p class="faint pager">History is in the timeline.</p>`;
}

/** A page of a list: its first index, and the paths of other pages. */
interface Slice {
  from: number;
  path(from: number): string;
}

/** Returns the part of a list for a page. An index after the end selects the last page. */
function sliceOf<One>(all: readonly One[], { from, path }: Slice) {
  const first = Math.max(0, Math.min(from, Math.floor((all.length - 1) / LIST_PAGE) * LIST_PAGE));
  const shown = all.slice(first, first + LIST_PAGE);
  const behind = first + shown.length;
  const left = all.length - behind;
  const pager =
    all.length > LIST_PAGE &&
    html`<p class="pager">${grouped(first + 1)} to ${grouped(behind)}${first > 0 && html` <a href="${path(Math.max(0, first - LIST_PAGE))}">those before</a>`}${left > 0 && html` <a href="${path(behind)}">and ${grouped(left)} more</a>`}</p>`;
  return { shown, pager };
}

interface Names {
  user: StoredUser;
  merged: MergedProfile[];
  renamed: { externalId: string; renamedAt: Date }[];
  pii: boolean;
  slice: Slice;
}

export function names({ user, merged, renamed, pii, slice }: Names): Part {
  const aliases = user.user_aliases ?? [];
  const all: (() => Part[])[] = [
    ...aliases.map((one) => () => ['Alias', `${one.alias_label}: ${pii ? one.alias_name : MASK}`, '']),
    ...renamed.map((one) => () => [
      'Earlier external id',
      shownExternalId(one.externalId, pii),
      moment(one.renamedAt),
    ]),
    ...merged.map((one) => () => [
      'Merged into this user',
      one.externalId === null
        ? html`<span class="id">${toServiceId(one.id)}</span>`
        : html`${shownExternalId(one.externalId, pii)} <span class="faint">service id <span class="id">${toServiceId(one.id)}</span></span>`,
      moment(one.mergedAt),
    ]),
  ];
  if (all.length === 0)
    return empty(
      'No other names',
      'Neither alias nor earlier external id, and nobody was merged into this user.',
    );
  const { shown, pager } = sliceOf(all, slice);
  return html`${table(
    'Other identifiers',
    ['Kind', 'Name', 'Since'],
    shown.map((row) => row()),
  )}${pager}
${renamed.length > MAX_RENAMED_IDS && html`<p class="faint pager">These are ${grouped(MAX_RENAMED_IDS)} earlier external ids of more: an export has all.</p>`}
${merged.length > MAX_MERGED && html`<p class="faint pager">These are ${grouped(MAX_MERGED)} merged users of more.</p>`}`;
}

export function devices(user: StoredUser, pii: boolean, slice: Slice): Part {
  const tokens = user.push_tokens ?? [];
  if (tokens.length === 0)
    return empty(
      'None',
      html`Push tokens come as <code>push_tokens</code> in <code>POST /users/track</code>.`,
    );
  const { shown, pager } = sliceOf(tokens, slice);
  const rows = shown.map(({ app, device_id, token }) => [
    app,
    html`<span class="id">${pii ? device_id : MASK}</span>`,
    html`<span class="id">${pii ? `${token.slice(0, 24)}${token.length > 24 ? '…' : ''}` : MASK}</span>`,
  ]);
  return html`${table('Devices', ['App', 'Device', 'Push token'], rows)}${pager}`;
}

export function summaries(user: StoredUser, slice: Slice): Part {
  const all = [
    ...(user.custom_events ?? []).map((one) => ({ kind: 'Event', ...one })),
    ...(user.purchases ?? []).map((one) => ({ kind: 'Purchase', ...one })),
  ];
  if (all.length === 0) return empty('Nothing yet', 'Events and purchases are counted by their name here.');
  all.sort((one, other) => (one.last < other.last ? 1 : -1));
  const { shown, pager } = sliceOf(all, slice);
  const revenue = Object.entries(user.revenue ?? {}).map(([currency, sum], index) => [
    index > 0 && ', ',
    money(sum, currency),
  ]);
  return html`${table(
    'Totals',
    ['Kind', 'Name', { name: 'Times', number: true }, 'First', 'Last'],
    shown.map((one) => [one.kind, one.name, count(one.count, '', ''), moment(one.first), moment(one.last)]),
  )}${revenue.length > 0 && html`<p class="pager">Revenue: ${revenue}</p>`}
${pager}`;
}
