import type { MarkLevel } from '../store/processes.ts';
import type { Check } from './check.ts';
import type { Readings } from './readings.ts';
import { amount, living } from './text.ts';

/** Share of a load limit above which a problem is listed. */
const NEAR = { share: 0.9 };

/** Load limit that the check `redis-filling` reports. */
const REDIS_MEMORY = 'redis_memory';

const tooMuch = 'Web accepts objects faster than the queue stores them. Check the latency of the stores.';
const slowSenders =
  'Too many requests arrive at once, or clients send slowly. Start another web process, or limit the connections in your proxy.';

/** Remedies by the name of the load limit. */
const remedies: Record<string, string> = {
  queue_depth:
    'Objects arrive faster than they are applied. Start another worker, or find the sender under Workspaces.',
  redis_memory: 'Start another worker, raise maxmemory, or remove other data from this Redis.',
  event_loop_lag: 'The process is overloaded. Start another web process.',
  pending_objects: tooMuch,
  pending_bytes: tooMuch,
  reading_bytes: slowSenders,
  small_bodies_bytes: slowSenders,
  response_bytes:
    'Clients request large responses and do not read them. Find the workspace under Workspaces, or raise MAX_RESPONSE_BYTES.',
};

const remedyOf = (name: string) => remedies[name] ?? 'The log of web has the cause.';

interface Web {
  marks: Record<string, MarkLevel>;
  refusedPerSecond: number;
}

/** Returns the running web processes. If a process reports about itself, returns only that process. */
function webs({ processes = [], own }: Readings): Web[] {
  if (own?.marks) return [{ marks: own.marks, refusedPerSecond: own.refusedPerSecond ?? 0 }];
  return living(processes, 'web').map(({ marks, refusedPerSecond }) => ({
    ...{ marks: marks ?? {}, refusedPerSecond },
  }));
}

const refusedBy = (list: Web[]) => list.reduce((sum, { refusedPerSecond }) => sum + refusedPerSecond, 0);

/** Returns the load limits for which `holds` is true, fullest first, each with the processes concerned. */
function marksOf(list: Web[], holds: (level: MarkLevel) => boolean) {
  const names = [...new Set(list.flatMap(({ marks }) => Object.keys(marks)))];
  return names
    .flatMap((name) => {
      const having = list.filter(({ marks }) => marks[name] && holds(marks[name]));
      const [fullest] = having
        .map(({ marks }) => marks[name]!)
        .sort((one, other) => other.value / other.mark - one.value / one.mark);
      return fullest ? [{ name, having, level: fullest }] : [];
    })
    .sort((one, other) => other.level.value / other.level.mark - one.level.value / one.level.mark);
}

/** Formats the usage of a limit, for example `queue_depth 313 of 300`, with its unit where needed. */
function used(name: string, { value, mark, unit }: MarkLevel): string {
  const plain = unit === 'jobs' || unit === 'objects';
  const shown = (number: number) => (plain ? amount(number, '').trim() : amount(number, unit));
  return `${name} ${shown(value)} of ${shown(mark)}`;
}

const rate = (perSecond: number) => amount(Math.max(0.1, perSecond), 'requests/s');

/** Checks of requests that web accepts and rejects. */
export const webChecks: readonly Check[] = [
  {
    id: 'refuses',
    group: 'web',
    severity: 'critical',
    scope: 'process',
    evaluators: ['fleet', 'process', 'prometheus'],
    impact:
      'Clients get 503 with `Retry-After`. Their objects are not stored. `/readyz` of the process answers 503 with `overload`. The process accepts requests again by itself when the value has fallen to nine tenths of the limit.',
    firstStep: 'For queue_depth and redis_memory, add workers. For the other limits, add web processes.',
    link: '/#limits',
    find(readings) {
      const list = webs(readings);
      return marksOf(list, ({ over }) => over).map(({ name, having, level }) => {
        const who =
          list.length === 1
            ? 'web refuses'
            : `${having.length} of ${list.length} web processes ${having.length === 1 ? 'refuses' : 'refuse'}`;
        const refused = refusedBy(having);
        const rates = refused > 0 ? `: ${rate(refused)} get 503` : '';
        return {
          subject: name,
          sentence: `${who} requests (${used(name, level)})${rates}.`,
          firstStep: remedyOf(name),
          ...(having.length < list.length && { severity: 'warning' as const }),
        };
      });
    },
    alert: {
      name: 'PenstockRefuses',
      expr: 'max by (instance, mark) (penstock_high_water_over) == 1',
      for: '15s',
      summary: '{{ $labels.instance }}: {{ $labels.mark }} is above its limit, and requests are refused',
      meaning:
        'A `web` process is above a load limit and has refused requests for 15 s. Only `queue_depth`, `redis_memory` and `event_loop_lag` can stay above their limit. The other limits refuse single requests: see `penstock_requests_refused_total` with the status 503.',
      diagnose: [
        'Read the label `mark`:',
        '- `queue_depth`: more objects arrive than workers apply.',
        '- `redis_memory`: see [PenstockRedisFull](#penstockredisfull).',
        '- `event_loop_lag`: the process has too much work.',
      ],
      fix: [
        '- `queue_depth`: with the queue in Redis, start more workers, up to `LANES` times `SHARDS`, if Postgres has free cores. With the queue in Postgres, the first worker keeps all lanes. Find the sender with `penstock usage` or `penstock_usage_today`.',
        '- `redis_memory`: start more workers (with the queue in Redis, up to `LANES` times `SHARDS`), or raise `maxmemory`. More web processes do not help. See [PenstockRedisFull](#penstockredisfull).',
        '- `event_loop_lag`: start more web processes. Limit connections in your proxy.',
      ],
    },
  },
  {
    id: 'workspace-over-share',
    group: 'web',
    severity: 'warning',
    scope: 'workspace',
    evaluators: ['prometheus'],
    impact:
      'Requests of this workspace get 503 with the code `workspace_over_share` until enough of its objects have been applied. Other workspaces are not refused.',
    firstStep:
      'Find the workspace with penstock_requests_refused_total, and add workers if the traffic is intended.',
    link: '/workspaces',
    alert: {
      name: 'PenstockWorkspaceOverShare',
      expr: 'max(penstock_web_largest_backlog_ratio) > 1',
      for: '15s',
      summary: 'queue: the backlog of a workspace is {{ $value | humanize }} times the free space',
      meaning:
        'The waiting jobs of a workspace need more space than the queue has left. One workspace may fill half of the queue, two a third each.',
      diagnose: [
        '`penstock_requests_refused_total{status="503"}` names the workspace. `penstock usage` shows what it sends. Jobs that change large users take longest.',
      ],
      fix: [
        '- If the traffic is intended, start more workers, up to `LANES` times `SHARDS`, or raise `MAX_WAITING_ENVELOPES`. On Redis, `maxmemory` limits the queue as well.',
        '- Otherwise lower its [rate limit](rate-limits.md#change-a-limit).',
      ],
    },
  },
  {
    id: 'redis-filling',
    group: 'redis',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['fleet', 'prometheus'],
    impact:
      'Above `MAX_REDIS_MEMORY_PERCENT` of `maxmemory`, `web` answers 503 to requests that would add a job.',
    firstStep: 'Check whether the queue grows, then add workers or raise maxmemory.',
    link: '/#limits',
    find(readings) {
      const [memory] = marksOf(webs(readings), ({ value, mark }) => value > mark * NEAR.share).filter(
        ({ name }) => name === REDIS_MEMORY,
      );
      // Above the limit, the check `refuses` reports it.
      if (!memory || memory.level.over) return [];
      const { value, mark } = memory.level;
      return [
        {
          sentence: `Redis uses ${amount(value, 'percent')} of its maxmemory. Above ${amount(mark, 'percent')}, web refuses requests.`,
        },
      ];
    },
    alert: {
      name: 'PenstockRedisFull',
      expr: `max(penstock_high_water_used_ratio{mark="${REDIS_MEMORY}"}) > ${NEAR.share}`,
      for: '15s',
      summary: `Redis: {{ $value | humanizePercentage }} of the allowed memory is used (threshold ${NEAR.share * 100}%)`,
      meaning:
        'Redis uses more than 90 % of the memory above which `web` refuses requests (`MAX_REDIS_MEMORY_PERCENT` of `maxmemory`).',
      diagnose: [
        '1. Run `penstock status`. If the queue grows, workers are missing or slow.',
        '2. Otherwise, another program stores data in this Redis. Run `redis-cli --bigkeys` to find it.',
      ],
      fix: [
        'Start more workers, raise `maxmemory`, or give Penstock a Redis of its own. Never set an eviction policy: Redis would drop accepted objects, and Penstock refuses to start.',
      ],
    },
  },
  {
    id: 'nearly-refuses',
    group: 'web',
    severity: 'warning',
    scope: 'process',
    evaluators: ['fleet'],
    impact: 'Above the limit, clients get 503.',
    firstStep: 'The log of web has the cause.',
    link: '/#limits',
    unless: ['refuses'],
    find(readings) {
      // Event loop lag fluctuates, so it is not reported in advance.
      const near = marksOf(
        webs(readings),
        ({ value, mark, unit }) => unit !== 'ms' && value >= mark * NEAR.share,
      );
      const [fullest] = near.filter(({ name }) => name !== REDIS_MEMORY);
      return fullest
        ? [
            {
              subject: fullest.name,
              sentence: `web is about to refuse requests (${used(fullest.name, fullest.level)}).`,
              firstStep: remedyOf(fullest.name),
            },
          ]
        : [];
    },
  },
  {
    id: 'refuses-otherwise',
    group: 'web',
    severity: 'info',
    scope: 'installation',
    evaluators: ['fleet'],
    impact: 'These requests have no effect.',
    firstStep:
      'Usually a workspace exceeds its rate limit, or has more waiting than is free in the queue (workspace_over_share). Its page under Workspaces shows the limit, and the log of web has each response with its key.',
    link: '/workspaces',
    unless: ['refuses', 'redis-away', 'postgres-away', 'queue-away', 'postgres-rejects-writes'],
    find(readings) {
      const refused = refusedBy(webs(readings));
      return refused > 0
        ? [{ sentence: `web refuses ${rate(refused)} with 429 or 503, although no load limit is exceeded.` }]
        : [];
    },
  },
  {
    id: 'objects-refused',
    group: 'web',
    severity: 'info',
    scope: 'installation',
    evaluators: ['prometheus'],
    impact:
      'Refused objects are not stored. The response names them in `errors`, which the sender may not read.',
    firstStep:
      'Open "Refused objects" in the console for the reason and the API key, and tell the owner of the key.',
    link: '/refused-objects',
    alert: {
      name: 'PenstockObjectsRefused',
      expr: 'sum(increase(penstock_objects_rejected_total[5m])) / (sum(increase(penstock_objects_rejected_total[5m])) + (sum(increase(penstock_objects_accepted_total[5m])) or vector(0))) > 0.1 and sum(increase(penstock_objects_rejected_total[5m])) > 100',
      summary:
        'web: {{ $value | humanizePercentage }} of the objects of the last 5 minutes were refused (threshold 10%)',
      meaning: 'Within 5 minutes, `web` refused more than 10 % of the objects, and more than 100 objects.',
      diagnose: [
        'Open **Refused objects** in the console. It lists reason, field, endpoint and API key, with a masked sample of each cause. `penstock_objects_rejected_reasons_total` shows the reasons over time.',
      ],
      fix: [
        'Tell the owner of the API key. The sender must correct the objects and send them again, because Penstock has no copy.',
      ],
    },
  },
  {
    id: 'unexpected-errors',
    group: 'web',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['prometheus'],
    impact:
      'Each object of the request took effect once or not at all. The cause is a fault in Penstock: invalid input gets 400.',
    firstStep: 'Find "unexpected error" in the log of web, and report it with its stack.',
    link: '/',
    alert: {
      name: 'PenstockUnexpectedErrors',
      expr: 'sum by (operation) (increase(penstock_requests_total{status="500"}[5m])) > 0',
      summary: 'web: {{ $labels.operation }} answered 500',
      meaning: 'A request was answered with 500.',
      diagnose: [
        'Search the log of `web` for `unexpected error`. The line has the `request_id` and the stack.',
      ],
      fix: [
        'Report the fault with this line. Ask the client to repeat the request with the same `Idempotency-Key`.',
      ],
    },
  },
  {
    id: 'rate-limited',
    group: 'web',
    severity: 'info',
    scope: 'workspace',
    evaluators: ['prometheus'],
    impact: 'These requests get 429 with `Retry-After` and have no effect.',
    firstStep: 'If the traffic is intended, raise the limit with `penstock limits set`.',
    link: '/workspaces',
    alert: {
      name: 'PenstockRateLimited',
      expr: 'sum by (workspace_id, bucket) (rate(penstock_requests_refused_total{status="429"}[5m])) > 1',
      summary:
        'workspace {{ $labels.workspace_id }}: {{ $value | humanize }} requests per second are over the limit {{ $labels.bucket }}',
      meaning:
        'In the last 5 minutes, more than one request per second of a workspace was over its [rate limit](rate-limits.md).',
      diagnose: [
        'Read the workspace and the bucket in the labels, and run `penstock limits list --workspace NAME`. The log lines name the key (`key_id`), and `/keys/<key_id>` in the console shows its requests by day.',
      ],
      fix: ['If the traffic is intended, raise the limit with `penstock limits set`. Otherwise do nothing.'],
    },
  },
];
