import { type Command, CommanderError } from 'commander';
import type { Readings } from '../../checks/readings.ts';
import type { Config } from '../../platform/config.ts';
import { START_COMMAND } from '../../platform/files.ts';
import { messageOf } from '../../platform/log.ts';
import { findDatabaseUrl } from '../../processes/dependencies.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import { laneCount } from '../../queue/lanes.ts';
import { readPostgresHealth } from '../../store/health.ts';
import { openDatabase } from '../../store/open-database.ts';
import { knownPooling } from '../../store/pooling.ts';
import { addVerb } from '../command.ts';
import { checkEnvelopes, createFleetReader, findingsOf } from '../doctor/fleet.ts';
import {
  checkCertificates,
  checkFiles,
  checkSettings,
  checkVersions,
  error,
  type Finding,
  readDisks,
  readPostgresDisk,
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
  if (config) findings.push(...checkFiles(config), ...(await checkStores(config)));
  const count = (level: Finding['level']) => findings.filter((one) => one.level === level).length;
  const [errors, warnings] = [count('error'), count('warning')];
  if (json)
    printJson({ healthy: errors === 0, errors, warnings, findings: findings.map((one) => ({ ...one })) });
  else process.stdout.write(describe(findings, errors, warnings));
  // The findings have been printed, so the error has no message.
  if (errors > 0) throw new CommanderError(1, 'penstock.doctor', '');
}

/** Checks each store separately, so that one store is checked even while the other is unavailable. */
async function checkStores(config: Config): Promise<Finding[]> {
  const disks = await readDisks(config);
  const databaseUrl = findDatabaseUrl(config);
  const readings: Readings = { at: new Date(), queue: config.QUEUE, lacking: [], disks };
  if (!databaseUrl) {
    const advice = `Run ${START_COMMAND}, set DATA_DIR to the folder of the installation, or set DATABASE_URL.`;
    const none = `DATABASE_URL is empty, and ${START_COMMAND} has never run in DATA_DIR`;
    return [...findingsOf(readings), error('postgres', none, advice)];
  }
  const database = openDatabase(databaseUrl, 2);
  const { pool } = database;
  try {
    const findings = await attempt('certificate', 'Correct sslrootcert in DATABASE_URL.', () =>
      checkCertificates(databaseUrl, redisUrls(config)),
    );
    findings.push(...checkPooling(config, databaseUrl));
    const reason = await pool.query('select 1').then(() => undefined, reasonOf);
    if (reason !== undefined) readings.lacking.push({ name: 'postgres', reason });
    else {
      findings.push(...(await attempt('postgres', 'Read the log of Postgres.', () => checkPostgres(pool))));
      if (findings.some(({ check, level }) => check === 'migrations' && level === 'error')) return findings;
      const { data_directory: folder } = (await readPostgresHealth(pool)).settings;
      const disk = await readPostgresDisk(databaseUrl, folder);
      if ('freeBytes' in disk) disks.push(disk);
      else findings.push(disk);
    }
    // The queue is in the same unavailable Postgres, so the queue checks cannot run.
    if (reason !== undefined && config.QUEUE === 'postgres') return [...findings, ...findingsOf(readings)];
    const read = async (connection: QueueConnection | undefined, whyNoQueue?: string): Promise<Finding[]> => {
      const fleet = reason === undefined && createFleetReader({ pool, connection, whyNoQueue, config });
      const lacking = connection ? [] : [{ name: 'redis' as const, reason: whyNoQueue }];
      const now = fleet ? await fleet.read() : { ...readings, lacking: [...readings.lacking, ...lacking] };
      return findingsOf({ ...now, disks });
    };
    let queue: Finding[] | undefined;
    try {
      await withQueueConnection({ config, databaseUrl, database }, async (connection) => {
        queue = [
          ...(await attempt('queue', 'Read the log of Redis.', () => checkRedis(connection))),
          ...(await attempt('queue', 'Read the log of Redis.', () =>
            checkEnvelopes(connection, laneCount(config)),
          )),
          ...(await read(connection)),
        ];
      });
    } catch (failure) {
      queue ??= await read(undefined, reasonOf(failure));
    }
    return [...findings, ...(queue ?? [])];
  } finally {
    await database.stop();
  }
}

const reasonOf = (failure: unknown) =>
  messageOf(failure) || String((failure as { code?: unknown }).code ?? 'no answer');

/** Checks that processes that need a Postgres session of their own do not connect through a transaction pooler. */
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

/** Formats the findings. Errors come last, next to the prompt, so that the operator sees them first. */
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
