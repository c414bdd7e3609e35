import { type Command, CommanderError } from 'commander';
import type { MachineReading, MachineReadings, Readings } from '../../checks/readings.ts';
import type { Config } from '../../platform/config.ts';
import { messageOf } from '../../platform/log.ts';
import { findDatabaseUrl } from '../../processes/dependencies.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import { laneCount } from '../../queue/lanes.ts';
import type { Database } from '../../store/database.ts';
import { openDatabase } from '../../store/open-database.ts';
import { knownPooling } from '../../store/pooling.ts';
import { addVerb } from '../command.ts';
import { readCertificates } from '../doctor/certificates.ts';
import { type Finding, findingsOf } from '../doctor/findings.ts';
import { createFleetReader } from '../doctor/fleet.ts';
import { readDisks, readFiles, readPostgresDisk, readSettings } from '../doctor/machine.ts';
import { readRedis, readServer, readTables, readUnreadable } from '../doctor/stores.ts';
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
  const findings = findingsOf(await readAll());
  const count = (level: Finding['level']) => findings.filter((one) => one.level === level).length;
  const [errors, warnings] = [count('error'), count('warning')];
  if (json)
    printJson({ healthy: errors === 0, errors, warnings, findings: findings.map((one) => ({ ...one })) });
  else process.stdout.write(describe(findings, errors, warnings));
  // The findings have been printed, so the error has no message.
  if (errors > 0) throw new CommanderError(1, 'penstock.doctor', '');
}

/** Readings that the following steps complete. */
type Taken = Readings & { machine: MachineReadings };

async function readAll(): Promise<Readings> {
  const { config, reading } = readSettings();
  const machine: MachineReadings = reading;
  const readings: Taken = { at: new Date(), queue: config?.QUEUE ?? 'redis', lacking: [], machine };
  if (!config) return readings;
  machine.files = readFiles(config);
  readings.disks = await readDisks(config);
  return readStores(config, readings);
}

/** Reads each store separately, so that one store is read even while the other is unavailable. */
async function readStores(config: Config, readings: Taken): Promise<Readings> {
  const { machine, lacking } = readings;
  const databaseUrl = findDatabaseUrl(config);
  if (!databaseUrl) {
    machine.lacksDatabaseUrl = true;
    return readings;
  }
  await attempt(machine, 'certificates', async () => {
    machine.certificates = await readCertificates(databaseUrl, config);
  });
  // A connection needs the same file, so no store can be read.
  if (!machine.certificates) return readings;
  const database = openDatabase(databaseUrl, 2);
  try {
    const reason = await database.pool.query('select 1').then(() => undefined, reasonOf);
    if (reason !== undefined) lacking.push({ name: 'postgres', reason });
    else {
      const { mode } = knownPooling(databaseUrl) ?? {};
      machine.lacksDirectUrl = mode === 'transaction' && config.DATABASE_DIRECT_URL === '';
      await attempt(machine, 'postgres', () => readPostgres({ config, databaseUrl, database }, readings));
    }
    if (machine.isMigrated === false) lacking.push({ name: 'migrations' });
    const isQueueAway = reason !== undefined && config.QUEUE === 'postgres';
    if (isQueueAway || machine.isMigrated === false) return readings;
    return await readQueue({ config, databaseUrl, database }, readings);
  } finally {
    await database.stop();
  }
}

interface Stores {
  config: Config;
  databaseUrl: string;
  database: Database;
}

/** Adds the answers of Postgres to the readings. @throws if a statement fails; earlier answers are kept */
async function readPostgres({ databaseUrl, database: { pool } }: Stores, readings: Taken): Promise<void> {
  const { machine } = readings;
  const { postgres, clock } = await readServer(pool);
  readings.postgres = postgres;
  machine.clocks = [clock];
  const disk = await readPostgresDisk(databaseUrl, postgres?.settings?.data_directory);
  if ('disk' in disk) readings.disks = [...(readings.disks ?? []), disk.disk];
  else Object.assign(machine, disk);
  Object.assign(machine, await readTables(pool));
}

/** Returns the readings with the answers of the queue, and with the state of the fleet if Postgres answers. */
async function readQueue(stores: Stores, readings: Taken): Promise<Readings> {
  const { config, database } = stores;
  const { machine, lacking } = readings;
  const isPostgresAway = lacking.some(({ name }) => name === 'postgres');
  const readFleet = async (connection?: QueueConnection, whyNoQueue?: string): Promise<Readings> => {
    if (!isPostgresAway) {
      const reader = createFleetReader({ pool: database.pool, connection, whyNoQueue, config });
      const fleet = await reader.read();
      const postgres = fleet.postgres && { ...readings.postgres, ...fleet.postgres };
      return { ...fleet, postgres, disks: readings.disks, own: readings.own, machine };
    }
    return connection
      ? readings
      : { ...readings, lacking: [...lacking, { name: 'redis', reason: whyNoQueue }] };
  };
  let complete: Readings | undefined;
  try {
    await withQueueConnection(stores, async (connection) => {
      await attempt(machine, 'queue', async () => {
        const { redis, clocks } = await readRedis(connection);
        machine.redis = redis;
        machine.clocks = [...(machine.clocks ?? []), ...clocks];
      });
      await attempt(machine, 'queue', async () => {
        readings.own = await readUnreadable(connection, laneCount(config));
      });
      complete = await readFleet(connection);
    });
  } catch (failure) {
    complete ??= await readFleet(undefined, reasonOf(failure));
  }
  return complete ?? readings;
}

/** Takes a reading, and records the reason if it fails. */
async function attempt(
  machine: MachineReadings,
  reading: MachineReading,
  read: () => Promise<void>,
): Promise<void> {
  try {
    await read();
  } catch (failure) {
    machine.failures = [...(machine.failures ?? []), { reading, reason: reasonOf(failure) }];
  }
}

const reasonOf = (failure: unknown) =>
  messageOf(failure) || String((failure as { code?: unknown }).code ?? 'no answer');

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
