import { type Command, CommanderError } from 'commander';
import type { Config } from '../../platform/config.ts';
import { START_COMMAND } from '../../platform/files.ts';
import { findDatabaseUrl } from '../../processes/dependencies.ts';
import { laneCount } from '../../queue/lanes.ts';
import { openDatabase } from '../../store/open-database.ts';
import { knownPooling } from '../../store/pooling.ts';
import { addVerb } from '../command.ts';
import { checkEnvelopes, judgeFleet, lookAtFleet } from '../doctor/fleet.ts';
import {
  checkCertificates,
  checkDisks,
  checkFiles,
  checkSettings,
  checkVersions,
  error,
  type Finding,
  redisUrls,
  warning,
} from '../doctor/machine.ts';
import { attempt, checkPostgres, checkRedis } from '../doctor/stores.ts';
import { printJson } from '../output.ts';
import { withQueueConnection } from '../queue.ts';

export function addDoctor(program: Command): void {
  addVerb(program, 'doctor', {
    sentence:
      'Check settings, stores, disks, files and processes, and print what to do. Exits with 1 if a check fails.',
    example: 'doctor',
  }).action(examine);
}

async function examine({ json }: { json?: boolean }): Promise<void> {
  const { config, findings } = checkSettings();
  findings.push(...checkVersions());
  if (config) {
    findings.push(...(await checkDisks(config)), ...checkFiles(config), ...(await checkStores(config)));
  }
  const count = (level: Finding['level']) => findings.filter((one) => one.level === level).length;
  const [errors, warnings] = [count('error'), count('warning')];
  if (json)
    printJson({ healthy: errors === 0, errors, warnings, findings: findings.map((one) => ({ ...one })) });
  else process.stdout.write(describe(findings, errors, warnings));
  // What is wrong has been told.
  if (errors > 0) throw new CommanderError(1, 'penstock.doctor', '');
}

/** Each on its own: where one store is away, the other is looked at. */
async function checkStores(config: Config): Promise<Finding[]> {
  const databaseUrl = findDatabaseUrl(config);
  if (!databaseUrl) {
    const advice = `Run ${START_COMMAND}, set DATA_DIR to the folder of the installation, or set DATABASE_URL.`;
    return [
      error('postgres', `DATABASE_URL is empty, and ${START_COMMAND} has never run in DATA_DIR`, advice),
    ];
  }
  const database = openDatabase(databaseUrl, 2);
  const { pool } = database;
  try {
    const certificates = await attempt('certificate', 'Correct sslrootcert in DATABASE_URL.', () =>
      checkCertificates(databaseUrl, redisUrls(config)),
    );
    const advice =
      config.DEPLOYMENT_FORM === 'production'
        ? 'Start the Postgres server of DATABASE_URL, or correct DATABASE_URL.'
        : `Run ${START_COMMAND}, or set DATA_DIR to the folder of a running installation.`;
    const postgres = await attempt('postgres', advice, () => checkPostgres(pool, databaseUrl));
    const findings = [...certificates, ...postgres, ...checkPooling(config, databaseUrl)];
    if (findings.some(({ check, level }) => check === 'migrations' && level === 'error')) return findings;
    const isThere = postgres.length > 1;
    // What is to be said of both has been said.
    if (!isThere && config.QUEUE === 'postgres') return findings;
    const queue = await attempt(
      'queue',
      'Start the Redis of REDIS_URL, or correct REDIS_URL and QUEUE.',
      () =>
        withQueueConnection({ config, databaseUrl, database }, async (connection) => [
          ...(await checkRedis(connection)),
          ...(await checkEnvelopes(connection, laneCount(config))),
          ...(isThere ? judgeFleet(await lookAtFleet(pool, connection), config) : []),
        ]),
    );
    return [...findings, ...queue];
  } finally {
    await database.stop();
  }
}

/** Whether what needs a session of its own has an address behind a pooler in transaction mode. */
function checkPooling(config: Config, databaseUrl: string): Finding[] {
  if (knownPooling(databaseUrl)?.mode !== 'transaction' || config.DATABASE_DIRECT_URL) return [];
  const found =
    'DATABASE_URL leads through a connection pooler in transaction mode, without DATABASE_DIRECT_URL';
  const advice = 'Set DATABASE_DIRECT_URL to the address of Postgres itself; see docs/connection-poolers.md.';
  return [
    config.QUEUE === 'postgres' ? error('postgres', found, advice) : warning('postgres', found, advice),
  ];
}

const marks = { ok: ' ok ', warning: 'warn', error: 'FAIL' };

/** What is wrong stands at the end, where it is read. */
function describe(findings: Finding[], errors: number, warnings: number): string {
  const order = ['ok', 'warning', 'error'];
  const sorted = [...findings].sort((one, other) => order.indexOf(one.level) - order.indexOf(other.level));
  const lines = sorted.flatMap(({ check, level, finding, advice }) => [
    `${marks[level]}  ${check.padEnd(12)}  ${finding}`,
    ...(advice === null ? [] : [`${' '.repeat(20)}${advice}`]),
  ]);
  const counted = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`;
  return `${lines.join('\n')}\n\n${counted(errors, 'error')}, ${counted(warnings, 'warning')}\n`;
}
