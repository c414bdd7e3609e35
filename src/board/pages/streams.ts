import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { audited } from '../../store/audit.ts';
import {
  type DestinationRow,
  listDestinations,
  MAX_DESTINATIONS,
  setDestinationState,
} from '../../store/stream-destinations.ts';
import { placeOf } from '../../streams/open-destination.ts';
import { type Page, type PageServices, Sorry } from '../console.ts';
import { badge, duration, empty, moment, pathWith, table, workspaceChoice } from '../layout.ts';
import { presentWorkspace } from './groups.ts';

/** Seconds behind, beyond those for which a file is gathered, from which on somebody may have to act: a stream gives way for one minute. */
const LATE_SECONDS = 120;

const list: Page<PageServices> = {
  method: 'get',
  path: '/streams',
  right: 'syncs',
  async handle(visit) {
    const workspace = await presentWorkspace(visit);
    const streams = await listDestinations(visit.services.database.pool, {
      workspaceId: workspace.id,
      limit: MAX_DESTINATIONS,
    });
    const body = html`<h1>Streams</h1>
<p class="lead">Where what takes effect in the workspace ${workspace.name} is sent on to, and how far each receiver has come.</p>
${
  visit.workspaces.length > 1 &&
  html`<form class="row" method="get" action="/streams">${workspaceChoice(visit.workspaces, workspace, { mayBeAll: false })}<button class="main">Show</button></form>`
}
${
  streams.length === 0
    ? empty(
        'No stream yet',
        html`Begin one: <code>penstock streams create --workspace ${workspace.name} --name crm --url https://crm.example.com/penstock</code>.`,
      )
    : tableOf(streams)
}`;
    return { title: 'Streams', body };
  },
};

function tableOf(streams: DestinationRow[]): Html {
  return table(
    'Streams',
    [
      ...['Stream', 'Receiver', 'State', 'Behind'],
      { name: 'Delivered', number: true },
      ...['Last delivery', 'Trouble', 'To do'],
    ],
    streams.map((stream) => [
      html`<span class="wrap">${stream.name}</span>`,
      html`<span class="id">${placeOf(stream)}</span>`,
      stream.state === 'active' ? badge('active', 'good') : badge('paused', 'warn'),
      stream.lag === 0
        ? 'nothing'
        : stream.lag > LATE_SECONDS + stream.gatherMs / 1000
          ? badge(duration(stream.lag), 'bad')
          : duration(stream.lag),
      grouped(Number(stream.delivered)),
      stream.deliveredAt ? moment(stream.deliveredAt) : html`<span class="faint">never</span>`,
      troubleOf(stream),
      button(stream),
    ]),
  );
}

function troubleOf({ failures, lastError, failedAt, nextTryAt, lost, lostAt }: DestinationRow): Part {
  const isFailing = failures > 0;
  if (!isFailing && Number(lost) === 0) return html`<span class="faint">none</span>`;
  return html`<span class="wrap">${
    isFailing &&
    html`${badge(`failed ${grouped(failures)} times in a row`, 'bad')} ${lastError} ${failedAt && moment(failedAt)}${nextTryAt && html`, next try ${moment(nextTryAt)}`} `
  }${
    Number(lost) > 0 &&
    html`${badge(`${grouped(Number(lost))} lost`, 'bad')} older than the log is kept${lostAt && html`, ${moment(lostAt)}`}`
  }</span>`;
}

function button({ workspaceId, id, name, state }: DestinationRow): Html {
  const action = state === 'active' ? 'pause' : 'resume';
  const text = state === 'active' ? 'Pause' : 'Resume';
  return html`<form method="post" action="/streams"><input type="hidden" name="workspace" value="${workspaceId}"><input type="hidden" name="id" value="${id}"><button name="action" value="${action}" aria-label="${text} ${name}">${text}</button></form>`;
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/streams',
  right: 'syncs',
  async handle(visit) {
    const { services, viewer, field, actor } = visit;
    const [id, action] = [field('id'), field('action')];
    if (action !== 'pause' && action !== 'resume') throw new Sorry(400, "'action' must be pause or resume.");
    const workspace = await viewer.find('syncs', field('workspace'));
    const { pool } = services.database;
    const own = workspace
      ? await listDestinations(pool, { workspaceId: workspace.id, limit: MAX_DESTINATIONS })
      : [];
    const stream = isUuid(id) ? own.find((one) => one.id === id) : undefined;
    if (!workspace || !stream) throw new Sorry(404, 'Stream not found in your workspaces.');
    await audited(pool, actor, async (tx) => {
      const isSet = await setDestinationState(
        tx,
        { workspaceId: workspace.id, id },
        action === 'pause' ? 'paused' : 'active',
      );
      const entry = {
        action: action === 'pause' ? 'streams.pause' : 'streams.resume',
        subject: { kind: 'stream', id },
        workspaceId: workspace.id,
        detail: { name: stream.name },
      } as const;
      return { result: undefined, entries: isSet ? [entry] : [] };
    });
    return {
      to: pathWith('/streams', { workspace: workspace.id, done: action === 'pause' ? 'paused' : 'resumed' }),
    };
  },
};

export const streamPages = [list, act];
