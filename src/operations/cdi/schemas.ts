import { createHash } from 'node:crypto';
import { validate } from 'uuid';
import { ApiError, errors } from '../../errors.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { Database } from '../../store/database.ts';
import { isIntegration } from '../../store/integrations.ts';
import type { KeysetPage, Listed } from '../../store/sync-lists.ts';

const text = (description: string) => ({ type: 'string', description });
const time = (description: string) => ({ type: ['string', 'null'], description: `${description} ISO 8601.` });

const integration: Schema = {
  title: 'Integration',
  type: 'object',
  properties: {
    integration_id: text('UUID.'),
    app_group_id: text('Id of the workspace.'),
    integration_name: text('Name of the integration.'),
    integration_type: text('Kind of the rows: `attributes`, `events`, `purchases` or `user_deletes`.'),
    integration_status: text('`draft`, `active` or `paused`.'),
    contact_emails: text('Email addresses, separated by commas.'),
    last_updated_at: time('Last UPDATED_AT that was synced. Null if no row was synced.'),
    warehouse_type: text(
      'Source of the rows: `postgres`, `redshift`, `folder`, `s3`, or the type that the integration was created with.',
    ),
    last_job_start_time: time('Start of the last job, or null before the first job.'),
    last_job_status: { type: ['string', 'null'], description: 'Status of the last job.' },
    next_scheduled_run: time(
      'Next scheduled start. Null if the integration has no schedule or is not active.',
    ),
  },
};

const job: Schema = {
  title: 'Sync job',
  type: 'object',
  properties: {
    job_status: text(
      '`running`; `success`: all rows synced; `partial`: some rows failed; `error`: the job failed; `config_error`: the settings of the integration are wrong.',
    ),
    sync_start_time: text('ISO 8601.'),
    sync_finish_time: time('End of the job. Null while it runs.'),
    last_timestamp_synced: time(
      'Last UPDATED_AT that the job has processed. Null if it has processed no row.',
    ),
    rows_synced: { type: 'integer', description: 'Rows that took effect.' },
    rows_failed_with_errors: { type: 'integer', description: 'Rows that failed.' },
  },
};

const listOf = (items: Schema): Schema => ({
  type: 'object',
  required: ['results', 'message'],
  properties: { results: { type: 'array', maxItems: 10, items }, message: { const: 'success' } },
});

export const integrationsReply = listOf(integration);
export const jobsReply = listOf(job);

/** Id of the integration in the documented examples. */
export const EXAMPLE_INTEGRATION = '019c13ec-a2e2-71d4-8c53-2f6be1a90c77';

/**
 * Returns the integration id of the path in lower case.
 * @throws {ApiError} invalidIntegrationId, or unknownIntegration if the workspace has no such integration
 */
export async function integrationIn(
  params: Record<string, string>,
  workspaceId: string,
  database: Pick<Database, 'prisma'>,
): Promise<string> {
  const { integration_id: text = '' } = params;
  if (!validate(text)) throw new ApiError('invalidIntegrationId');
  const id = text.toLowerCase();
  if (!(await isIntegration(database, id, workspaceId))) throw new ApiError('unknownIntegration');
  return id;
}

/** Number of elements per page, given by the specification. */
const PAGE_SIZE = 10;

export const cursorQuery: Schema = {
  type: 'object',
  properties: {
    cursor: {
      type: 'string',
      description: 'Cursor of a page, from a `Link` header. By default the first page.',
      refusal: { type: errors.invalidCursor.message },
    },
  },
};

/**
 * Reads the requested page from the cursor.
 *
 * @param list name of the list. A cursor of another list is invalid
 * @throws {ApiError} invalidCursor
 */
export function readPage({ cursor }: Record<string, Json>, list: string): KeysetPage {
  if (cursor === undefined) return { direction: 'older', size: PAGE_SIZE };
  const text = Buffer.from(cursor as string, 'base64').toString('latin1');
  const [direction, from = ''] = text.split(':', 2);
  if ((direction !== 'older' && direction !== 'newer') || !validate(from))
    throw new ApiError('invalidCursor');
  if (cursorOf(direction, from, list) !== cursor) throw new ApiError('invalidCursor');
  return { direction, from, size: PAGE_SIZE };
}

/** Returns the `Link` header of a page, without members if there is only one page. `prev` links the newer rows. */
export function linkTo(
  path: string,
  list: string,
  { rows, newer, older }: Listed<{ id: string }>,
): Record<string, string> {
  const link = (direction: KeysetPage['direction'], row: { id: string } | undefined, rel: string) =>
    row ? [`<${path}?cursor=${cursorOf(direction, row.id, list)}>; rel="${rel}"`] : [];
  const links = [
    ...link('newer', newer ? rows[0] : undefined, 'prev'),
    ...link('older', older ? rows.at(-1) : undefined, 'next'),
  ];
  return links.length > 0 ? { Link: links.join(',') } : {};
}

/**
 * Encodes direction, id and a check as Base64. Base64 of these characters has no + or /, which a URL would
 * have to escape.
 */
function cursorOf(direction: KeysetPage['direction'], id: string, list: string): string {
  const check = createHash('sha256').update(`${list} ${direction} ${id}`).digest('hex').slice(0, 8);
  return Buffer.from(`${direction}:${id}:${check}`).toString('base64');
}
