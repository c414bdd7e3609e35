import { now } from '../../platform/clock.ts';
import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { takePage } from '../../platform/paging.ts';
import { valueOfIdentifier } from '../../profile/identifier.ts';
import { isUuid } from '../../profile/values.ts';
import { rowErrorColumns, runColumns } from '../../resources/runs.ts';
import { recordAudit } from '../../store/audit.ts';
import { type SelectedIntegration, selectIntegrations } from '../../store/integrations.ts';
import { type ListedRowError, selectRowErrors } from '../../store/sync-chunks.ts';
import { type SelectedRun, selectRuns } from '../../store/sync-lists.ts';
import { lacking, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { count, csvLine, duration, empty, fullTime, MASK, moment, nextPage, pathWith } from '../layout.ts';
import { described, describedFacts, type Extras } from '../resource-pages.ts';
import { runCharts } from './syncs.ts';

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
  const [integration] = isUuid(id) ? await selectIntegrations(services.database.pool, { id, limit: 1 }) : [];
  if (!integration || !(await viewer.find('syncs', integration.workspaceId)))
    throw new PageError(404, 'Integration not found in your workspaces.');
  return integration;
}

/** Additions to the pages of integrations: the run in progress, and the runs. */
export const integrationExtras: Extras<SelectedIntegration> = {
  async section({ services, query }, { id }) {
    const before = isUuid(query('before')) ? query('before') : undefined;
    const runs = await selectRuns(services.database.pool, id, { after: before, limit: PAGE + 1 });
    const { rows: shown, next } = takePage(runs, PAGE, (run) => run.id);
    const present = before === undefined && runs[0]?.finishedAt === null ? runs[0] : undefined;
    return html`${present && progress(present)}
<h2>Runs</h2>${
      shown.length === 0
        ? empty('It has never run', 'Press “Sync now”, or wait for its schedule.')
        : html`${runCharts(shown)}${described('Runs', runColumns, {
            rows: shown,
            first: {
              title: 'Began',
              cell: (run) => html`<a href="/syncs/${id}/runs/${run.id}">${moment(run.startedAt)}</a>`,
            },
          })}`
    }
${next !== null && nextPage(`/syncs/${id}`, { before: next })}`;
  },
};

function progress({ rowsRead, rowsSynced, rowsFailed, startedAt, cancelledAt }: SelectedRun): Html {
  const seconds = (now() - Date.parse(startedAt)) / 1000;
  const rate = seconds > 0 ? rowsRead / seconds : 0;
  return html`<p class="banner warn" role="status">${cancelledAt ? 'Ending' : 'Running'} for ${duration(seconds)}: ${count(rowsRead, 'row')} read, ${grouped(rowsSynced)} synced, ${grouped(rowsFailed)} failed; ${grouped(Math.round(rate))} rows/s.${rowsRead === 0 && ' No row yet: without a sync process it waits for one.'}</p>`;
}

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
    const errors = await selectRowErrors(services.database.pool, run.id, { after, limit: ROWS + 1 });
    const { rows, next } = takePage(errors, ROWS, ({ number }) => String(number));
    const self = `/syncs/${integration.id}/runs/${run.id}`;
    const body = html`<p><a href="/syncs/${integration.id}">${integration.name}</a></p><h1>Run of ${run.startedAt ? fullTime(run.startedAt) : moment(null)}</h1>
<div class="card">${describedFacts(runColumns, run)}</div>
<h2>Failed rows and rows with a warning</h2>
${rowsOf(rows, { pii, self, ...(viewer.can('users', integration.workspaceId) && { workspaceId: integration.workspaceId }) })}
${next !== null && nextPage(self, { after: next })}`;
    return { title: `Run of ${integration.name}`, body };
  },
};

interface RowsPlace {
  pii: boolean;
  /** Path of the run. */
  self: string;
  /** Workspace of the users that identifiers link to; absent if the viewer may not see its users. */
  workspaceId?: string;
}

function rowsOf(rows: ListedRowError[], { pii, self, workspaceId }: RowsPlace): Part {
  if (rows.length === 0)
    return empty('None', 'Rows are kept here for 30 days with the reason for which they failed.');
  const mask = (value: string | null) => (value === null ? null : pii ? value : MASK);
  const masked = rows.map((row) => ({ ...row, identifier: mask(row.identifier), reason: mask(row.reason)! }));
  const linked = ({ identifier, identifiers: [first] }: ListedRowError) => ({
    text: identifier ?? '',
    ...(first !== undefined && {
      href: pathWith('/users', { q: valueOfIdentifier(first), workspace: workspaceId }),
    }),
  });
  const columns =
    pii && workspaceId !== undefined
      ? rowErrorColumns.map((column) =>
          column.name === 'identifier' ? { ...column, shown: linked } : column,
        )
      : rowErrorColumns;
  return html`${pii && html`<p class="actions"><a class="button" href="${self}/rows.csv">Download as CSV</a></p>`}${described('Rows', columns, { rows: masked })}`;
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

export const syncPages = [showRun, download];
