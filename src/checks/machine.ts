import { START_COMMAND } from '../platform/files.ts';
import type { Check, Exceeded } from './check.ts';
import type { MachineReading, MachineSettings, Readings } from './readings.ts';

/** Maximum of MAX_REDIS_MEMORY_PERCENT at which Redis still has memory for the workers. */
const REDIS_MEMORY = { percent: 95 };

/** Permission bits of the group and of other users. */
const OTHERS = 0o077;

const LOOPBACK = /^(127\.|localhost$|::1$)/;

/** Returns a `find` that compares valid settings with a rule. */
const ofSettings =
  (sentenceOf: (settings: MachineSettings) => string | false) =>
  ({ machine }: Readings): Exceeded[] => {
    const sentence = machine?.settings && sentenceOf(machine.settings);
    return sentence ? [{ sentence }] : [];
  };

/** Returns a check that reports the reason why `penstock doctor` could not take a reading. */
function unreadCheck(
  reading: MachineReading,
  { id, group, title, firstStep }: Pick<Check, 'id' | 'group' | 'firstStep'> & { title: string },
): Check {
  return {
    ...{ id, group, severity: 'critical', scope: 'machine', evaluators: ['machine'] },
    ...{ impact: 'Some checks did not run.', firstStep, link: '/' },
    find: ({ machine }) =>
      (machine?.failures ?? [])
        .filter((failure) => failure.reading === reading)
        .map(({ reason }) => ({ sentence: `${title} could not be read: ${reason}.` })),
  };
}

/** Checks of the machine on which `penstock doctor` runs: settings, files, and failed readings. */
export const machineChecks: readonly Check[] = [
  {
    id: 'settings-invalid',
    group: 'settings',
    severity: 'critical',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Processes with these settings exit when they start.',
    firstStep: 'Correct the setting (see docs/settings.md). No other check could run.',
    link: '/',
    normal: ({ machine }) => machine?.settings && 'every setting is valid',
    find: ({ machine }) => (machine?.invalidSetting ? [{ sentence: machine.invalidSetting }] : []),
  },
  {
    id: 'metrics-open',
    group: 'settings',
    severity: 'warning',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Metrics show the traffic and the state of this installation.',
    firstStep: 'Set METRICS_TOKEN, or block /metrics in the proxy.',
    link: '/',
    find: ofSettings(
      ({ webHost, hasMetricsToken }) =>
        !LOOPBACK.test(webHost) &&
        !hasMetricsToken &&
        `HOST is ${webHost} and METRICS_TOKEN is empty: everyone who reaches PORT can read /metrics.`,
    ),
  },
  {
    id: 'console-open',
    group: 'settings',
    severity: 'warning',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Without TLS, passwords and sessions of the console can be read on the network.',
    firstStep: 'Allow access only from a proxy with TLS or from a private network.',
    link: '/',
    find: ofSettings(
      ({ consoleHost }) =>
        !LOOPBACK.test(consoleHost) && `BOARD_HOST is ${consoleHost}: other machines can reach the console.`,
    ),
  },
  {
    id: 'redis-limit-high',
    group: 'settings',
    severity: 'warning',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'If Redis refuses the workers, the queue does not drain.',
    firstStep: `Set MAX_REDIS_MEMORY_PERCENT to ${REDIS_MEMORY.percent} or less.`,
    link: '/',
    find: ofSettings(
      ({ redisPercent }) =>
        redisPercent > REDIS_MEMORY.percent &&
        `MAX_REDIS_MEMORY_PERCENT is ${redisPercent}: near 100, Redis also refuses the workers.`,
    ),
  },
  {
    id: 'integration-key-missing',
    group: 'settings',
    severity: 'warning',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Integrations do not work, and neither do streams to webhooks and buckets.',
    firstStep:
      'Create a key with `openssl rand -base64 32`, and set it as INTEGRATION_KEY for sync, board and this command.',
    link: '/',
    find: ofSettings(
      ({ isProduction, hasIntegrationKey }) =>
        isProduction &&
        !hasIntegrationKey &&
        'INTEGRATION_KEY is empty: credentials of integrations, streams to webhooks and buckets cannot be stored or read.',
    ),
  },
  {
    id: 'secret-readable',
    group: 'files',
    severity: 'critical',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Other users of this machine can read passwords and keys.',
    firstStep: 'Run `chmod 600` on the file.',
    link: '/',
    normal: ({ machine }) => machine?.files && 'files with secrets are readable only by their owner',
    find: ({ machine }) =>
      (machine?.files ?? [])
        .filter(({ mode }) => (mode & OTHERS) !== 0)
        .map(({ path, mode }) => ({
          subject: path,
          sentence: `${path} has mode ${mode.toString(8)}: other users of this machine can read it.`,
          firstStep: `Run \`chmod 600 ${path}\`.`,
          // `.env` is read from the current folder, so it can be a file of another program.
          ...(path === '.env' && { severity: 'warning' as const }),
        })),
  },
  {
    id: 'postgres-address-missing',
    group: 'postgres',
    severity: 'critical',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Commands on this machine cannot reach Postgres. The stores were not checked.',
    firstStep: `Run ${START_COMMAND}, set DATA_DIR to the folder of the installation, or set DATABASE_URL.`,
    link: '/',
    find: ({ machine }) =>
      machine?.lacksDatabaseUrl
        ? [{ sentence: `DATABASE_URL is empty, and ${START_COMMAND} has never run in DATA_DIR.` }]
        : [],
  },
  {
    id: 'direct-address-missing',
    group: 'postgres',
    severity: 'warning',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Migrations fail. With `QUEUE=postgres`, no process starts.',
    firstStep: 'Set DATABASE_DIRECT_URL to the address of Postgres itself; see docs/connection-poolers.md.',
    link: '/',
    find: ({ machine, queue }) =>
      machine?.lacksDirectUrl
        ? [
            {
              sentence:
                'DATABASE_URL leads through a connection pooler in transaction mode, without DATABASE_DIRECT_URL.',
              ...(queue === 'postgres' && { severity: 'critical' as const }),
            },
          ]
        : [],
  },
  unreadCheck('certificates', {
    ...{ id: 'certificates-unread', group: 'certificate', title: 'The certificates' },
    firstStep: 'Correct sslrootcert in DATABASE_URL. The stores were not checked.',
  }),
  unreadCheck('postgres', {
    ...{ id: 'postgres-unread', group: 'postgres', title: 'The state of Postgres' },
    firstStep: 'Read the log of Postgres.',
  }),
  unreadCheck('queue', {
    ...{ id: 'queue-unread', group: 'queue', title: 'The state of the queue' },
    firstStep: 'Read the log of Redis, or with `QUEUE=postgres` the log of Postgres.',
  }),
];
