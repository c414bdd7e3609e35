import type { Schema } from '../../schemas/schema.ts';

const text = (description: string) => ({ type: 'string', description });
const time = (description: string) => ({ type: ['string', 'null'], description: `${description} ISO 8601.` });

const integration: Schema = {
  title: 'Integration',
  type: 'object',
  properties: {
    integration_id: text('UUID.'),
    app_group_id: text('Id of the workspace.'),
    integration_name: text('As it was given.'),
    integration_type: text('What its rows are: `attributes`, `events`, `purchases` or `user_deletes`.'),
    integration_status: text('`draft`, `active` or `paused`.'),
    contact_emails: text('Addresses, with commas between.'),
    last_updated_at: time('The last UPDATED_AT that was synced; null: none yet.'),
    warehouse_type: text('Where the rows are: `postgres`, `redshift`, `folder`, `s3` or as it was given.'),
    last_job_start_time: time('When the last job began; null: there was none.'),
    last_job_status: { type: ['string', 'null'], description: 'Of that job.' },
    next_scheduled_run: time('Null: on demand only, or not active.'),
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
    sync_finish_time: time('Null: it runs.'),
    last_timestamp_synced: time('The last UPDATED_AT that it has processed; null: none.'),
    rows_synced: { type: 'integer', description: 'Rows that took effect.' },
    rows_failed_with_errors: { type: 'integer', description: 'Rows that did not.' },
  },
};

const listOf = (items: Schema): Schema => ({
  type: 'object',
  required: ['results', 'message'],
  properties: { results: { type: 'array', maxItems: 10, items }, message: { const: 'success' } },
});

export const integrationsReply = listOf(integration);
export const jobsReply = listOf(job);
