import { now } from '../../platform/clock.ts';
import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { newId } from '../../platform/ids.ts';
import { isUuid } from '../../profile/values.ts';
import { type AuditAction, type AuditEntry, audited, recordAudit } from '../../store/audit.ts';
import {
  type SelectedIntegration,
  selectIntegrations,
  setIntegrationStatus,
} from '../../store/integrations.ts';
import { type ListedRowError, selectRowErrors } from '../../store/sync-chunks.ts';
import { type SelectedRun, selectRuns } from '../../store/sync-lists.ts';
import { cancelRun, startRun } from '../../store/sync-runs.ts';
import { lacking, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import {
  count,
  csvLine,
  duration,
  empty,
  facts,
  fullTime,
  MASK,
  moment,
  nextPage,
  pathWith,
  table,
} from '../layout.ts';
import { nextOf, runCharts, secondsOf, statusBadge } from './syncs.ts';

const PAGE = 25;

/** Rows per page of failed rows, and per query of a download. */
const ROWS = 100;

/** @throws {PageError} if no workspace of the viewer contains the integration */
async function findIntegration({
  services,
  viewer,
  params,
}: Visit<PageServices>): Promise<SelectedIntegration> {
  const id = params.id ?? '';
  const [found] = isUuid(id) ? await selectIntegrations(services.database.pool, { id, limit: 1 }) : [];
  if (!found || !(await viewer.find('syncs', found.workspaceId)))
    throw new PageError(404, 'Integration not found in your workspaces.');
  return found;
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/syncs/:id',
  right: 'syncs',
  async handle(visit) {
    const integration = await findIntegration(visit);
    const before = isUuid(visit.query('before')) ? visit.query('before') : undefined;
    const runs = await selectRuns(visit.services.database.pool, integration.id, {
      after: before,
      limit: PAGE + 1,
    });
    const present = before === undefined && runs[0]?.finishedAt === null ? runs[0] : undefined;
    const body = html`<h1>${integration.name}</h1>
<p class="lead">Rows of ${integration.kind} for the workspace ${integration.workspace}</p>
${actions(integration, present)}
${present && progress(present)}
<div class="card">${facts([
      ['Status', statusBadge(integration.status)],
      ['Next run', nextOf(integration)],
      ['Schedule', integration.schedule ?? 'on demand'],
      ['Source', html`<span class="id">${whereIs(integration)}</span>`],
      ['Read up to', moment(integration.lastTimestamp)],
      ['Contacts', integration.contactEmails],
      ['Unknown users', integration.updateExistingOnly ? 'ignored' : 'created'],
      ['Made', moment(integration.createdAt)],
    ])}</div>
<h2>Runs</h2>${
      runs.length === 0
        ? empty('It has never run', 'Press “Sync now”, or wait for its schedule.')
        : html`${runCharts(runs.slice(0, PAGE))}${runTable(integration.id, runs.slice(0, PAGE))}`
    }
${runs.length > PAGE && nextPage(`/syncs/${integration.id}`, { before: runs[PAGE - 1]!.id })}`;
    return { title: integration.name, body, ...(present && { refresh: 3 }) };
  },
};

function actions({ id, status }: SelectedIntegration, present: SelectedRun | undefined): Html {
  const button = (action: string, text: string, style = '') =>
    html`<form method="post" action="/syncs/${id}"><button class="${style}" name="action" value="${action}">${text}</button></form>`;
  if (status === 'draft')
    return html`<p class="banner warn">It is a draft: <code>penstock integrations resume</code> tests its source and activates it.</p>`;
  return html`<div class="actions">${status === 'active' && !present && button('sync', 'Sync now', 'main')}
${present && !present.cancelledAt && button('cancel', 'Cancel run', 'danger')}
${status === 'active' ? button('pause', 'Pause') : button('resume', 'Resume', 'main')}</div>`;
}

function progress({ rowsRead, rowsSynced, rowsFailed, startedAt, cancelledAt }: SelectedRun): Html {
  const seconds = (now() - Date.parse(startedAt)) / 1000;
  const rate = seconds > 0 ? rowsRead / seconds : 0;
  return html`<p class="banner warn" role="status">${cancelledAt ? 'Ending' : 'Running'} for ${duration(seconds)}: ${count(rowsRead, 'row')} read, ${grouped(rowsSynced)} synced, ${grouped(rowsFailed)} failed; ${grouped(Math.round(rate))} rows/s.${rowsRead === 0 && ' No row yet: without a sync process it waits for one.'}</p>`;
}

/** Describes the source without its credentials, which are not loaded. */
function whereIs({ source, warehouseType }: SelectedIntegration): string {
  const {
    type,
    host,
    port,
    database,
    table: name,
    path,
    bucket,
    prefix,
  } = (source ?? {}) as Record<string, string>;
  if (type === 'postgres') return `${host}:${port}/${database} ${name}`;
  if (type === 'folder') return `${path}`;
  return bucket === undefined ? warehouseType : `s3://${bucket}/${prefix ?? ''}`;
}

function runTable(id: string, runs: SelectedRun[]): Html {
  return table(
    'Runs',
    [
      'Began',
      'Result',
      'Asked by',
      'Duration',
      { name: 'Read', number: true },
      { name: 'Synced', number: true },
      { name: 'Failed', number: true },
      'Why',
    ],
    runs.map((run) => [
      html`<a href="/syncs/${id}/runs/${run.id}">${moment(run.startedAt)}</a>`,
      statusBadge(run.status),
      run.askedBy,
      duration(secondsOf(run)),
      grouped(run.rowsRead),
      grouped(run.rowsSynced),
      grouped(run.rowsFailed),
      html`<span class="wrap">${run.message}</span>`,
    ]),
  );
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/syncs/:id',
  right: 'syncs',
  async handle(visit) {
    const { id, status, workspaceId } = await findIntegration(visit);
    const { pool } = visit.services.database;
    const back = (done: string) => ({ to: pathWith(`/syncs/${id}`, { done }) });
    const entry = (action: AuditAction, detail = {}): AuditEntry => ({
      ...{ action, subject: { kind: 'integration', id }, workspaceId, detail },
    });
    switch (visit.field('action')) {
      case 'sync': {
        const run = newId();
        const started = await audited(pool, visit.actor, async (tx) => {
          // Sync processes poll the table, so no job is enqueued.
          const result = await startRun(tx, { id: run, integrationId: id, askedBy: 'operator' });
          return { result, entries: result === 'started' ? [entry('syncs.start', { run })] : [] };
        });
        if (started === 'started') return back('begun');
        if (started === 'in progress')
          throw new PageError(
            409,
            'Another run of the integration is in progress. Wait until it has finished, or cancel it.',
          );
        throw new PageError(409, `The integration is ${status}. Resume it first.`);
      }
      case 'cancel': {
        const run = await audited(pool, visit.actor, async (tx) => {
          const result = await cancelRun(tx, id);
          return { result, entries: result === undefined ? [] : [entry('syncs.cancel', { run: result })] };
        });
        return back(run === undefined ? 'nothing' : 'cancelled');
      }
      case 'pause':
      case 'resume': {
        const isPause = visit.field('action') === 'pause';
        const isSet = await audited(pool, visit.actor, async (tx) => {
          const result = await setIntegrationStatus(tx, id, isPause ? 'paused' : 'active');
          const auditEntry = entry(isPause ? 'integrations.pause' : 'integrations.resume');
          return { result, entries: result ? [auditEntry] : [] };
        });
        if (!isSet)
          throw new PageError(
            409,
            'It is a draft: penstock integrations resume tests its source and activates it.',
          );
        return back(isPause ? 'paused' : 'resumed');
      }
      default:
        throw new PageError(400, "'action' must be sync, cancel, pause or resume.");
    }
  },
};

async function findRun(visit: Visit<PageServices>) {
  const integration = await findIntegration(visit);
  const id = visit.params.run ?? '';
  const [run] = isUuid(id)
    ? await selectRuns(visit.services.database.pool, integration.id, { id, limit: 1 })
    : [];
  if (!run) throw new PageError(404, 'The integration has no such run, or it is older than a year.');
  return { integration, run };
}

const showRun: Page<PageServices> = {
  method: 'get',
  path: '/syncs/:id/runs/:run',
  right: 'syncs',
  async handle(visit) {
    const { services, viewer, query } = visit;
    const { integration, run } = await findRun(visit);
    const pii = viewer.can('pii', integration.workspaceId);
    const after = /^\d{1,15}$/.test(query('after')) ? Number(query('after')) : 0;
    const rows = await selectRowErrors(services.database.pool, run.id, { after, limit: ROWS + 1 });
    const self = `/syncs/${integration.id}/runs/${run.id}`;
    const body = html`<p><a href="/syncs/${integration.id}">${integration.name}</a></p><h1>Run of ${run.startedAt ? fullTime(run.startedAt) : moment(null)}</h1>
<div class="card">${facts([
      ['Result', statusBadge(run.status)],
      ['Why', run.message],
      ['Duration', duration(secondsOf(run))],
      ['Read', count(run.rowsRead, 'row')],
      ['Synced', count(run.rowsSynced, 'row')],
      ['Failed', count(run.rowsFailed, 'row')],
      ['Ended', run.finishedAt && moment(run.finishedAt)],
      ['Read up to', moment(run.lastTimestamp)],
    ])}</div>
<h2>Failed rows and rows with a warning</h2>
${rowsOf(rows.slice(0, ROWS), { pii, self })}
${rows.length > ROWS && nextPage(self, { after: String(rows[ROWS - 1]!.number) })}`;
    return { title: `Run of ${integration.name}`, body };
  },
};

function rowsOf(rows: ListedRowError[], { pii, self }: { pii: boolean; self: string }): Part {
  if (rows.length === 0)
    return empty('None', 'Rows are kept here for 30 days with the reason for which they failed.');
  const mask = (value: string | null) => (value === null ? '' : pii ? value : MASK);
  return html`${pii && html`<p class="actions"><a class="button" href="${self}/rows.csv">Download as CSV</a></p>`}${table(
    'Rows',
    [{ name: 'Row', number: true }, 'Outcome', 'Updated', 'Identifier', 'Reason'],
    rows.map((row) => [
      grouped(row.number),
      statusBadge(row.synced ? 'success' : 'error'),
      row.updatedAt,
      html`<span class="wrap">${mask(row.identifier)}</span>`,
      html`<span class="wrap">${mask(row.reason)}</span>`,
    ]),
  )}`;
}

const download: Page<PageServices> = {
  method: 'get',
  path: '/syncs/:id/runs/:run/rows.csv',
  right: 'syncs',
  async handle(visit) {
    const { integration, run } = await findRun(visit);
    if (!visit.viewer.can('pii', integration.workspaceId)) throw lacking('pii');
    const { pool } = visit.services.database;
    const subject = { kind: 'integration', id: integration.id };
    const { workspaceId } = integration;
    // Recorded before the download starts, because sent data cannot be revoked.
    await recordAudit(pool, visit.actor, [
      { action: 'syncs.download_rows', subject, workspaceId, detail: { run: run.id } },
    ]);
    async function* chunks() {
      yield 'row,outcome,updated_at,identifier,reason,payload\r\n';
      for (let after = 0; ; ) {
        const rows = await selectRowErrors(pool, run.id, { after, limit: ROWS });
        if (rows.length === 0) return;
        yield rows.map(csvOf).join('');
        after = rows.at(-1)!.number;
      }
    }
    return { file: `rows-${run.id}.csv`, type: 'text/csv; charset=utf-8', chunks: chunks() };
  },
};

/** Formats a failed row as a CSV line. */
export function csvOf({ number, synced, updatedAt, identifier, reason, payload }: ListedRowError): string {
  return csvLine([number, synced ? 'synced' : 'failed', updatedAt, identifier, reason, payload]);
}

export const syncPages = [show, act, showRun, download];
