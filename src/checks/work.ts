import { count, duration, grouped } from '../platform/format.ts';
import type { Check } from './check.ts';
import { living } from './text.ts';

const BEHIND = { seconds: 300 };
const RETENTION = { seconds: 86_400 };

/** Checks of work that waits for an operator: dead letters, streams, syncs, exports, imports and the retention. */
export const workChecks: readonly Check[] = [
  {
    id: 'stream-lost',
    group: 'streams',
    severity: 'critical',
    scope: 'stream',
    evaluators: ['fleet', 'prometheus'],
    impact: 'The destination never receives these changes.',
    firstStep: 'Run `penstock streams show` for the time range, then update the destination by other means.',
    permit: 'syncs',
    link: '/streams',
    find: ({ streams = [] }) =>
      streams
        .filter(({ lost }) => lost > 0)
        .map(({ workspaceId, workspace, name, lost, lostAt }) => ({
          subject: `${name} (${workspace})`,
          workspaceId,
          sentence: `The stream ${name} (${workspace}) did not receive ${count(lost, 'transaction')}, which the log no longer has.`,
          since: lostAt ?? undefined,
        })),
    alert: {
      name: 'PenstockStreamLost',
      expr: 'max by (workspace, destination) (penstock_stream_lost_rows) > 0',
      summary:
        'stream {{ $labels.destination }} of {{ $labels.workspace }}: changes were dropped before delivery',
      meaning:
        'A destination was so far behind that changes were removed from the log after `STREAM_LOG_DAYS`.',
      diagnose: [
        'Run `penstock streams show`: `lost_rows` counts the lost transactions, and `lost_at` is the time of the last loss.',
      ],
      fix: [
        '1. Update the destination by other means, for example with `penstock export`.',
        '2. Run `penstock streams replay-from` with an `--at` before the beginning of the log, to deliver the whole log again. This also sets the count of lost transactions to 0 and ends the alert. The lost changes stay lost.',
      ],
    },
  },
  {
    id: 'dead-letters',
    group: 'dead letters',
    severity: 'warning',
    scope: 'workspace',
    evaluators: ['fleet', 'prometheus'],
    impact: 'These objects have no effect. Other objects of the same requests took effect.',
    firstStep: 'Run `penstock dead-letters list` for the reasons, fix the cause, and replay them.',
    link: '/dead-letters',
    find: ({ deadLetters }) =>
      deadLetters && deadLetters.count > 0
        ? [
            {
              sentence: `${deadLetters.isMore ? 'More than ' : ''}${count(deadLetters.count, 'dead letter')} ${deadLetters.count === 1 ? 'needs' : 'need'} attention.`,
              since: deadLetters.since ?? undefined,
            },
          ]
        : [],
    alert: {
      name: 'PenstockDeadLettersGrow',
      expr: 'sum(increase(penstock_worker_dead_letters_total[5m])) > 0',
      summary: 'workers: {{ $value | humanize }} dead letters in 5 minutes',
      meaning: 'Objects could not be applied and became dead letters.',
      diagnose: ['Run `penstock dead-letters list` for the reasons. The console shows each object.'],
      fix: [
        '- If the object broke a limit (for example too many aliases, or too large a user), tell its sender. Discard or correct the dead letter.',
        '- If the error of the store is over, or you fixed the cause, run `penstock dead-letters replay --all`.',
      ],
    },
  },
  {
    id: 'stream-failing',
    group: 'streams',
    severity: 'warning',
    scope: 'stream',
    evaluators: ['fleet'],
    impact: 'The destination receives changes late. Changes older than `STREAM_LOG_DAYS` are dropped.',
    firstStep: 'Fix the destination, then run penstock streams resume, which retries immediately.',
    permit: 'syncs',
    link: '/streams',
    find: ({ streams = [], at }) =>
      streams
        .filter(({ failures, isPaused, lost }) => failures > 0 && !isPaused && lost === 0)
        .map(({ workspaceId, workspace, name, failures, lag, lastError }) => ({
          subject: `${name} (${workspace})`,
          workspaceId,
          sentence: `The stream ${name} (${workspace}) has failed ${failures === 1 ? 'once' : `${grouped(failures)} times in a row`} and is ${duration(lag)} behind: ${lastError ?? 'unknown error'}.`,
          since: new Date(at.getTime() - lag * 1000),
        })),
  },
  {
    id: 'stream-behind',
    group: 'streams',
    severity: 'warning',
    scope: 'stream',
    evaluators: ['fleet', 'prometheus'],
    impact: 'The destination receives changes late. Changes older than `STREAM_LOG_DAYS` are dropped.',
    firstStep: 'Run `penstock streams show` for the last error.',
    permit: 'syncs',
    link: '/streams',
    find: ({ streams = [], at }) =>
      streams
        .filter(({ failures, isPaused, lost, lag, gather }) => {
          return failures === 0 && !isPaused && lost === 0 && lag > BEHIND.seconds + gather;
        })
        .map(({ workspaceId, workspace, name, lag }) => ({
          subject: `${name} (${workspace})`,
          workspaceId,
          sentence: `The stream ${name} (${workspace}) is ${duration(lag)} behind, and its destination accepts messages.`,
          since: new Date(at.getTime() - lag * 1000),
          firstStep:
            'A sync process is throttled while the machine has no idle CPU. See penstock_stream_yielded_seconds_total, STREAM_YIELD_SECONDS and PenstockStreamLags in docs/runbook.md.',
        })),
    alert: {
      name: 'PenstockStreamLags',
      expr: `max by (workspace, destination) (penstock_stream_lag_seconds - penstock_stream_gather_seconds) > ${BEHIND.seconds}`,
      summary: `stream {{ $labels.destination }} of {{ $labels.workspace }}: {{ $value | humanizeDuration }} behind, not counting the time for which it collects changes (threshold ${BEHIND.seconds / 60}m)`,
      meaning:
        'A destination of a [stream](streams.md) is more than 5 minutes behind, not counting the time for which it collects changes (`penstock_stream_gather_seconds`).',
      diagnose: [
        '1. Run `penstock streams show`. It shows the last error and the next attempt.',
        '2. If all streams lag without an error, look for a transaction that has been open for minutes: `select pid, xact_start, query from pg_stat_activity order by xact_start`.',
        '3. If `penstock_stream_yielded_seconds_total` grows, streams yield to requests. By default they yield for at most a minute (`STREAM_YIELD_SECONDS`), so a longer lag has another cause. If the processors of the machine are busy all the time, give `sync` a machine of its own.',
        '4. If the alert ends and streams still lag, check with `penstock status` that a `sync` process is running: without one, the metric is missing.',
      ],
      fix: [
        '- Fix the destination, then run `penstock streams resume`, which tries at once.',
        '- End the long transaction.',
        '- Remove a destination that is not needed: `penstock streams remove`.',
        '- For files, the error names the folder or bucket. `… is not an existing folder`: mount its disk. `its disk is full`: free space there, or in `TMPDIR` of `sync` if the error names that folder. `still has an earlier write in progress`: a network disk does not answer.',
      ],
    },
  },
  {
    id: 'sync-failed',
    group: 'syncs',
    severity: 'warning',
    scope: 'run',
    evaluators: ['fleet', 'prometheus'],
    impact: 'Changes in the warehouse do not reach users until a run succeeds.',
    firstStep: 'Run `penstock integrations logs` for the reason.',
    permit: 'syncs',
    link: '/syncs',
    find: ({ syncs }) =>
      (syncs?.troubled ?? []).map(
        ({ workspaceId, workspace, integration, id, status, rowsFailed, message, endedAt }) => ({
          sentence:
            status === 'partial'
              ? `The last run of ${integration} (${workspace}) ended as partial: ${count(Number(rowsFailed), 'row')} failed.`
              : `The last run of ${integration} (${workspace}) ended as ${status}${message ? `: ${message}` : ''}.`,
          since: new Date(endedAt),
          subject: `${integration} (${workspace})`,
          workspaceId,
          link: `/syncs/${id}`,
          ...(status === 'partial' && { impact: 'The rows that failed had no effect. All other rows did.' }),
        }),
      ),
    alert: {
      name: 'PenstockSyncFailing',
      expr: 'max by (workspace, integration) (penstock_sync_integration_failing) == 1',
      summary: 'integration {{ $labels.integration }} of {{ $labels.workspace }}: the last run failed',
      meaning: 'The last run of an integration ended as `error` or `config_error`.',
      diagnose: ['Run `penstock integrations logs`. It shows the reason and the rows.'],
      fix: [
        '- `config_error`: correct the credentials, the columns or the table of the integration.',
        '- `error`: the source did not answer, or answered with an error. Fix the source. The next run continues where this run stopped. No row takes effect twice.',
      ],
    },
  },
  {
    id: 'syncs-stand',
    group: 'syncs',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['fleet', 'prometheus'],
    impact: 'Changes in the warehouse do not reach users. No row is lost.',
    firstStep: 'Start a sync process.',
    link: '/syncs',
    find: ({ syncs, processes }) =>
      syncs && processes && syncs.unfinished > 0 && living(processes, 'sync').length === 0
        ? [
            {
              sentence: `No sync is running. ${count(syncs.unfinished, 'run')} of integrations ${syncs.unfinished === 1 ? 'waits' : 'wait'}.`,
            },
          ]
        : [],
    alert: {
      name: 'PenstockSyncStands',
      expr: 'max(penstock_sync_runs_unfinished) > 0 and max(penstock_processes{process="sync"}) == 0',
      for: '15s',
      summary: 'sync: no process is running, and runs of integrations wait',
      meaning: 'Runs of integrations wait, and no `sync` process is running.',
      diagnose: ['Run `penstock status`, and read the last log line of `sync`.'],
      fix: ['Start `sync`. It continues from the last checkpoint.'],
    },
  },
  {
    id: 'export-failed',
    group: 'exports',
    severity: 'warning',
    scope: 'run',
    evaluators: ['fleet', 'prometheus'],
    impact: 'The client waits for an answer that does not arrive. Other exports are not affected.',
    firstStep: 'Open /exports in the console for the error.',
    permit: 'segments',
    link: '/exports',
    find: ({ exports = [] }) =>
      exports.map(({ workspaceId, workspace, segment, lastError, endedAt }) => ({
        subject: `${segment} (${workspace})`,
        workspaceId,
        sentence: `A segment export of ${segment} (${workspace}) failed: ${lastError ?? 'unknown error'}.`,
        since: endedAt,
      })),
    alert: {
      name: 'PenstockSegmentExportFailed',
      expr: 'sum by (outcome) (increase(penstock_segment_exports_total{outcome=~"failed|not_told"}[15m])) > 0',
      summary: 'segment exports: {{ $value | humanize }} ended as {{ $labels.outcome }} in 15 minutes',
      meaning:
        'A segment export of `POST /users/export/segment` ended without files (`failed`), or its callback was not reached for an hour (`not_told`).',
      diagnose: [
        'Open `/exports` in the console, or run `penstock segments exports --workspace NAME`. Each export has its last error.',
      ],
      fix: [
        '- `failed`: fix the bucket or folder, or `SEGMENT_EXPORT_URL` and the `S3_*` settings that name it. Then the client requests the export again.',
        '- `not_told`: the files exist. The owner of the callback address must fix the callback. Then the client requests the export again.',
      ],
    },
  },
  {
    id: 'import-stopped',
    group: 'imports',
    severity: 'warning',
    scope: 'run',
    evaluators: ['fleet'],
    impact: 'The rows after the last imported row are not imported.',
    firstStep: 'Run the same penstock import command again. It continues after the last row.',
    permit: 'company',
    link: '/imports',
    find: ({ imports = [], at }) =>
      imports.map(({ workspaceId, workspace, file, rows, stoppedAt }) => ({
        subject: `${file} (${workspace})`,
        workspaceId,
        sentence: `The import of ${file} (${workspace}) has not continued for ${duration((at.getTime() - stoppedAt.getTime()) / 1000)}, after row ${grouped(rows)}.`,
        since: stoppedAt,
      })),
  },
  {
    id: 'retention-failing',
    group: 'retention',
    severity: 'warning',
    scope: 'run',
    evaluators: ['prometheus'],
    impact:
      'These months stay in their tables and use disk space. No row is lost. Other months are archived.',
    firstStep: 'Run `penstock retention show` for the reason.',
    link: '/',
    alert: {
      name: 'PenstockRetentionFailing',
      expr: 'max by (task) (penstock_retention_failing) > 0',
      summary: 'retention: {{ $labels.task }} fails for {{ $value }} months',
      meaning:
        'The [retention](retention.md) could not archive months (`archive`), or could not erase deleted users from archived files (`erase`).',
      diagnose: [
        'Run `penstock retention show`: `failing_months` and `failure` name the month, the file and the reason. The log of `sync` has one error per month.',
      ],
      fix: [
        'Choose the line of the reason:',
        '- *full*, *no right*, *does not answer*: fix the folder or bucket of the archive.',
        '- *has changed since it was written*, *there is no such file*: restore the file from a version of the bucket or from a copy.',
        '- *could not be detached*: a long transaction, for example a backup, held the table. End it, or wait.',
        '`sync` tries again after one hour, then after two, and so on up to a day. To try at once, run `penstock retention run` or `penstock retention erase`.',
      ],
    },
  },
  {
    id: 'retention-stands',
    group: 'retention',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['prometheus'],
    impact: 'Old months stay in their tables.',
    firstStep: 'Check that a sync process is running and that ARCHIVE_URL is set.',
    link: '/',
    alert: {
      name: 'PenstockRetentionStands',
      expr: `time() - max(penstock_retention_last_run_timestamp_seconds) > ${RETENTION.seconds}`,
      summary: `retention: no run has finished for {{ $value | humanizeDuration }} (threshold ${RETENTION.seconds / 86_400}d)`,
      meaning: 'No run of the retention has finished for a day.',
      diagnose: [
        '1. Run `penstock status` to see whether a `sync` process is running.',
        '2. Search the log of `sync` for `retention is waiting: ARCHIVE_URL is not set` or `retention failed`.',
        '3. If you find neither line, check `penstock_retention_overdue`. If it falls, a first run over many months is in progress: wait.',
      ],
      fix: [
        'Set `ARCHIVE_URL`, and restart `sync` and `board`. If you want to run the retention on your own schedule, run `penstock retention run`, which also ends the alert. If you want to keep all months, set `RETENTION_MONTHS=0`, restart `sync` and `board`, and run `penstock retention set --workspace NAME --months forever` for each workspace that has a number of its own.',
      ],
    },
  },
];
