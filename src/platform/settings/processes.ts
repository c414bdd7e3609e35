import { integer, port, servers, text } from './define.ts';

/** Settings of the health endpoints and of the shutdown of processes. */
export const healthSettings = {
  WORKER_HOST: {
    ...text({
      description: 'The address on which a worker serves /healthz, /readyz and /metrics.',
      default: '127.0.0.1',
      example: '0.0.0.0',
      readBy: ['worker', 'start'],
    }),
    unit: 'address',
  },
  WORKER_PORT: port({
    description:
      'The port on which a worker serves /healthz, /readyz and /metrics. Further workers of the same machine use a free port. 0: none.',
    default: 3002,
    example: '9102',
    readBy: ['worker', 'start'],
  }),
  SYNC_HOST: {
    ...text({
      description: 'The address on which a sync process serves /healthz, /readyz and /metrics.',
      default: '127.0.0.1',
      example: '0.0.0.0',
      readBy: ['sync', 'start'],
    }),
    unit: 'address',
  },
  SYNC_PORT: port({
    description:
      'The port on which a sync process serves /healthz, /readyz and /metrics. Further sync processes of the same machine use a free port. 0: none.',
    default: 3003,
    example: '9103',
    readBy: ['sync', 'start'],
  }),
  MAX_ENVELOPE_AGE_MS: integer({
    description:
      'The maximum age of the oldest job of a lane. If a job is older, /readyz of the workers answers 503, and /readyz of web and the log name the lane. The backlog of one workspace that takes effect job by job does not count.',
    ...{ default: 60_000, minimum: 1000, maximum: 86_400_000, unit: 'ms' },
    example: '120000',
    readBy: ['web', 'worker'],
  }),
  MAX_STANDSTILL_MS: integer({
    description:
      'The maximum time for which jobs can wait while no worker takes one. After this time, /readyz of web reports a standstill, and web logs an error.',
    ...{ default: 10_000, minimum: 1000, maximum: 86_400_000, unit: 'ms' },
    example: '30000',
    readBy: ['web'],
  }),
  READY_AT_STANDSTILL: text({
    description:
      'Whether a web process stays ready during a standstill: `yes` or `no`. With `no`, load balancers send it no requests until a worker takes jobs again.',
    default: 'yes',
    example: 'no',
    readBy: ['web'],
    enum: ['yes', 'no'],
  }),
  SHUTDOWN_DELAY_MS: integer({
    description:
      'The time for which web and board keep serving after SIGTERM, with 503 on /readyz, so that load balancers stop sending requests. Set it longer than two health checks of your load balancer. 0: stop immediately.',
    ...{ default: 0, minimum: 0, maximum: 600_000, unit: 'ms' },
    example: '10000',
    readBy: ['web', 'board', 'start'],
  }),
  SHUTDOWN_TIMEOUT_MS: integer({
    description:
      'The maximum time that a process takes to stop after SIGTERM and SHUTDOWN_DELAY_MS. Set the kill timeout of your supervisor longer than both together.',
    ...{ default: 5000, minimum: 100, maximum: 600_000, unit: 'ms' },
    example: '10000',
    readBy: [...servers, 'start'],
  }),
} as const;
