import { START_COMMAND } from '../platform/files.ts';
import { count, duration, grouped } from '../platform/format.ts';
import { ENDS_SECONDS, type SeenProcess, SILENT_SECONDS } from '../store/processes.ts';
import type { Check } from './check.ts';
import { amount, living, nameOf } from './text.ts';

const ENDS = { count: 3, seconds: ENDS_SECONDS };
const MEMORY = { bytes: 1_500_000_000 };

const startOne = (name: string) =>
  `Start one: ${START_COMMAND}, or ${name} in the Procfile. If a process of ${name} still exists, it hangs: restart it.`;

/** Names the process of a kind that has sent the latest heartbeat; empty if the list has none. */
function lastHeartbeat(processes: readonly SeenProcess[], kind: SeenProcess['name']): string {
  const [last] = processes
    .filter(({ name }) => name === kind)
    .sort((one, other) => one.silentSeconds - other.silentSeconds);
  return last ? ` The last heartbeat came from ${nameOf(last)}, ${duration(last.silentSeconds)} ago.` : '';
}

const SILENT_IMPACT = 'The process was killed, is frozen, or cannot reach Postgres.';

/** Checks of the processes of an installation. */
export const processChecks: readonly Check[] = [
  {
    id: 'no-web',
    group: 'processes',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'prometheus'],
    impact: 'Clients probably get no answer either. Requests that were in progress were cut off.',
    firstStep: 'Read the last log line of web, then start web again.',
    link: '/#processes',
    normal: ({ processes }) =>
      processes &&
      `${count(living(processes, 'web', 'worker', 'sync', 'board').length, 'process', 'processes')} running`,
    find: ({ processes }) =>
      processes && living(processes, 'web').length === 0
        ? [{ sentence: `No web is running. Clients get no answer.${lastHeartbeat(processes, 'web')}` }]
        : [],
    alert: {
      name: 'PenstockNoWeb',
      expr: 'absent(penstock_build_info{process="web"})',
      for: '30s',
      summary: 'web: no process answers Prometheus',
      meaning: 'Prometheus has received no metrics from any `web` process for 30 s.',
      diagnose: [
        '1. Run `curl http://web:3000/healthz`.',
        '2. If the connection is refused, no process is running. Read the last log line of `web`: it names the cause in one sentence.',
        '3. If you get an answer, Prometheus uses another address, or `METRICS_TOKEN` differs from the token that it sends (401).',
      ],
      fix: [
        'Start `web`. The log line names a wrong setting or a port that is in use. Clients may repeat the requests that were cut off. With an `Idempotency-Key`, no request takes effect twice.',
      ],
    },
  },
  {
    id: 'no-worker',
    group: 'processes',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'prometheus'],
    impact:
      'Accepted objects wait in the queue and do not take effect. No object is lost. `web` answers 503 when `MAX_WAITING_ENVELOPES` jobs wait.',
    firstStep: startOne('worker'),
    link: '/#processes',
    find({ processes, lanes }) {
      if (!processes || living(processes, 'worker').length > 0) return [];
      const waiting = (lanes ?? []).reduce((sum, { depth }) => sum + depth, 0);
      const oldest = Math.max(0, ...(lanes ?? []).map(({ oldestSeconds }) => oldestSeconds));
      const jobs =
        waiting === 0
          ? ''
          : ` ${count(waiting, 'job')} ${waiting === 1 ? 'waits' : 'wait'}, the oldest for ${duration(oldest)}.`;
      return [{ sentence: `No worker is running.${jobs}${lastHeartbeat(processes, 'worker')}` }];
    },
    alert: {
      name: 'PenstockNoWorker',
      expr: 'max(penstock_processes{process="worker"}) == 0',
      for: '15s',
      summary: 'worker: no process is running',
      meaning:
        'No `worker` has sent a heartbeat for 20 s, and this has lasted for 15 s. A worker that restarts is back earlier.',
      diagnose: [
        '1. Run `penstock status`. It shows when the last worker stopped sending heartbeats.',
        '2. Read the last log line of that worker. A line of level `fatal` names the cause.',
        '3. If there is no such line, the process was killed (check `dmesg` for memory) or its machine is gone.',
      ],
      fix: ['Start a worker. It applies the waiting objects in order.'],
    },
  },
  {
    id: 'process-silent',
    group: 'processes',
    severity: 'warning',
    scope: 'process',
    evaluators: ['fleet'],
    impact: `${SILENT_IMPACT} Other processes of its kind do its work.`,
    firstStep:
      'Read its last log line, then restart it. If it was removed on purpose, run: penstock workers forget.',
    link: '/#processes',
    find: ({ processes = [] }) =>
      processes
        .filter(({ silentSeconds }) => silentSeconds > SILENT_SECONDS)
        .map((one) => ({ one, isLast: living(processes, one.name).length === 0 }))
        // `no-web` and `no-worker` name the last process of these kinds.
        .filter(({ one, isLast }) => !(isLast && ['web', 'worker'].includes(one.name)))
        .map(({ one, isLast }) => ({
          subject: nameOf(one),
          sentence: `${nameOf(one)} has sent no heartbeat for ${duration(one.silentSeconds)}.`,
          since: one.seenAt,
          ...(isLast && { impact: `${SILENT_IMPACT} No other ${one.name} process is running.` }),
        })),
  },
  {
    id: 'process-ends-repeatedly',
    group: 'processes',
    severity: 'critical',
    scope: 'process',
    evaluators: ['fleet'],
    impact: 'Its work stops while it starts again, and may not progress at all.',
    firstStep:
      'Read the end of the log of the process that ended. A job of sync that ends its process is set aside after two ends, an object that ends its worker after four.',
    link: '/#processes',
    find: ({ ends = [] }) =>
      ends
        .filter((one) => one.count >= ENDS.count)
        .map((one) => ({
          subject: one.name,
          sentence: `${one.name} ended ${one.count} times in ${ENDS_SECONDS / 60} min; ${one.lastError === null ? 'no error was recorded; read its log' : `last error: ${one.lastError}`}.`,
          publicSentence: `${one.name} ended ${one.count} times in ${ENDS_SECONDS / 60} min.`,
          since: one.since,
        })),
  },
  {
    id: 'process-lacks',
    group: 'processes',
    severity: 'critical',
    scope: 'process',
    evaluators: ['fleet', 'prometheus'],
    impact:
      'If the store of the queue is away (Redis, or Postgres with `QUEUE=postgres`), `web` answers 503 within a second. If only Postgres is away, `web` continues to accept requests with API keys that it looked up less than a minute ago. It then answers 503. Reads and requests with an `Idempotency-Key` get 503 within 2 s. Accepted objects wait. The process resumes by itself.',
    firstStep: 'Run `penstock doctor` for the cause. For `migrations`, run `release`.',
    link: '/#processes',
    unless: ['postgres-away', 'redis-away', 'tables-missing', 'queue-away'],
    find: ({ processes = [] }) =>
      living(processes, 'web', 'worker', 'sync', 'board')
        .filter(({ missing }) => missing.length > 0)
        .map((one) => ({
          subject: nameOf(one),
          sentence: `${nameOf(one)} cannot reach ${one.missing.join(' and ')}, which answers others.`,
        })),
    alert: {
      name: 'PenstockDependencyAway',
      expr: 'min by (process, instance, dependency) (penstock_dependency_up) == 0',
      for: '15s',
      summary: '{{ $labels.instance }}: {{ $labels.dependency }} is unavailable',
      meaning:
        'A process has had no connection to Postgres, its tables (`migrations`), Redis, or the queue in Postgres for 15 s.',
      diagnose: [
        '1. Search the log for `Postgres does not answer (…)`, or the line about Redis. It has the reason.',
        '2. Run `penstock doctor`. It tries each connection and reports the error.',
      ],
      fix: [
        'Start the store, or repair the network to it. For `migrations`, run `release` or `penstock migrate`.',
      ],
    },
  },
  {
    id: 'releases-differ',
    group: 'processes',
    severity: 'info',
    scope: 'installation',
    evaluators: ['fleet', 'prometheus'],
    impact: 'Two releases may run together only during an upgrade.',
    firstStep: 'Run `penstock status`, then finish the upgrade or revert it.',
    link: '/#processes',
    find({ processes = [] }) {
      const releases = [
        ...new Set(living(processes, 'web', 'worker', 'sync', 'board').map(({ version }) => version)),
      ].sort();
      return releases.length > 1
        ? [{ sentence: `${grouped(releases.length)} releases are running: ${releases.join(' and ')}.` }]
        : [];
    },
    alert: {
      name: 'PenstockReleasesDiffer',
      expr: 'count(count by (version) (penstock_build_info)) > 1',
      for: '30m',
      summary: 'processes: {{ $value }} releases have been running for 30 minutes',
      meaning: 'Processes of two releases have been running for 30 minutes.',
      diagnose: ['Run `penstock status` and read the column `version`.'],
      fix: [
        'Finish the [upgrade](upgrade.md), or revert it. Workers leave jobs that they cannot read to newer workers.',
      ],
    },
  },
  {
    id: 'process-large',
    group: 'processes',
    severity: 'warning',
    scope: 'process',
    evaluators: ['fleet', 'prometheus'],
    impact: 'The operating system may kill the process.',
    firstStep:
      'Check penstock_web_reading_bytes, penstock_web_small_bodies_bytes and penstock_web_response_bytes. If the memory keeps growing, restart the process with SIGTERM.',
    link: '/#processes',
    find: ({ processes = [] }) =>
      living(processes, 'web', 'worker', 'sync', 'board')
        .filter(({ residentBytes }) => residentBytes > MEMORY.bytes)
        .map((one) => ({
          subject: nameOf(one),
          sentence: `${nameOf(one)} uses ${amount(one.residentBytes, 'bytes')} of memory (threshold ${amount(MEMORY.bytes, 'bytes')}).`,
        })),
    alert: {
      name: 'PenstockMemory',
      expr: `(process_resident_memory_bytes and on (instance) penstock_build_info) > ${MEMORY.bytes}`,
      for: '1m',
      summary: `{{ $labels.instance }}: {{ $value | humanize1024 }}B of memory is used (threshold ${MEMORY.bytes / 1e9}GB)`,
      meaning: 'A process uses more than 1.5 GB of memory.',
      diagnose: [
        'Compare the memory over an hour: does it grow, or does it stay? In `web`, check `penstock_web_reading_bytes`, `penstock_web_small_bodies_bytes` and `penstock_web_response_bytes`: they are high if clients send large bodies, or hold many connections open, or do not read responses.',
      ],
      fix: [
        '- Lower `MAX_READING_BYTES`, `MAX_SMALL_BODIES_BYTES` and `MAX_RESPONSE_BYTES` ([settings](settings.md)).',
        '- If the memory grows without end, restart the process with SIGTERM, which loses no object. Report it with a heap snapshot.',
      ],
    },
  },
  {
    id: 'job-overdue',
    group: 'processes',
    severity: 'critical',
    scope: 'run',
    evaluators: ['process'],
    impact: 'The job makes no progress, and the process is not ready.',
    firstStep: 'Read the log of the process. Restart it if the job does not continue.',
    link: '/syncs',
    find: ({ own }) =>
      (own?.overdue ?? []).map(({ kind, id, seconds }) => ({
        sentence: `The ${kind} ${id} has made no progress for ${duration(seconds)}.`,
      })),
  },
];
