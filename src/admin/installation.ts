import path from 'node:path';
import { type Config, readConfig } from '../config.ts';
import { readEmbeddedUrl } from '../embedded/postgres.ts';
import { type Database, openDatabase } from '../store/database.ts';
import { PENSTOCK } from './command-name.ts';
import { codeOf, describeFailure, Refusal } from './refusal.ts';

/** The Penstock that a command works on. */
export interface Installation {
  config: Config;
  databaseUrl: string;
  database: Database;
}

/** One command does one thing at a time. */
const POOL_SIZE = 2;

/** What Postgres says to a client that meant another Postgres: the port has gone to someone else. */
const STRANGER = ['28000', '28P01', '3D000'];

/**
 * Runs `work` on the database of DATABASE_URL, else on that of the embedded installation that runs on
 * DATA_DIR, and closes it.
 * @throws {Refusal} when neither answers, or when it holds no tables of Penstock.
 */
export async function withInstallation(work: (installation: Installation) => Promise<void>): Promise<void> {
  await withDatabase(async (installation) => {
    const { rows } = await installation.database.pool.query<{ found: boolean }>(
      "select to_regclass('workspaces') is not null as found",
    );
    if (!rows[0]?.found) {
      throw new Refusal(`the database has no tables of Penstock yet; make them with ${PENSTOCK} migrate`);
    }
    await work(installation);
  });
}

/** As `withInstallation`, with tables or without. */
export async function withDatabase(work: (installation: Installation) => Promise<void>): Promise<void> {
  const config = readConfig();
  const databaseUrl = config.DATABASE_URL || readEmbeddedUrl(config.DATA_DIR);
  if (!databaseUrl) throw nothingRuns(config);
  const database = openDatabase(databaseUrl, POOL_SIZE);
  try {
    await database.pool.query('select 1').catch((error: unknown) => {
      throw unreachable(config, error);
    });
    await work({ config, databaseUrl, database });
  } finally {
    await database.stop();
  }
}

function unreachable(config: Config, error: unknown): Refusal {
  const code = codeOf(error);
  // The address of an embedded Postgres outlives it.
  if (!config.DATABASE_URL && (code === 'ECONNREFUSED' || STRANGER.includes(code ?? '')))
    return nothingRuns(config);
  const where = config.DATABASE_URL ? 'DATABASE_URL' : 'DATA_DIR';
  return new Refusal(`the database of ${where} cannot be reached: ${describeFailure(error)}`);
}

function nothingRuns(config: Config): Refusal {
  const folder = path.resolve(config.DATA_DIR);
  return new Refusal(`no Penstock is running on ${folder}; start it with npm start or set DATABASE_URL`);
}
