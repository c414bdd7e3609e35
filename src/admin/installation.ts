import { userInfo } from 'node:os';
import path from 'node:path';
import { validate } from 'uuid';
import type { Company, Prisma, Workspace } from '../generated/prisma/client.ts';
import { type Config, readConfig } from '../platform/config.ts';
import { START_COMMAND } from '../platform/files.ts';
import { codeOf, describeFailure } from '../platform/format.ts';
import { findDatabaseUrl } from '../processes/dependencies.ts';
import { type Changed, change as changeAs } from '../resources/change.ts';
import type { Actor } from '../store/audit.ts';
import type { Database } from '../store/database.ts';
import { openDatabase } from '../store/open-database.ts';
import { PENSTOCK, Refusal } from './command.ts';

/**
 * Finds a company by its name or its id.
 * @throws {Refusal} if no company matches
 */
export async function findCompany({ prisma }: Database, nameOrId: string): Promise<Company> {
  const company =
    (await prisma.company.findUnique({ where: { name: nameOrId } })) ??
    (validate(nameOrId) ? await prisma.company.findUnique({ where: { id: nameOrId } }) : null);
  if (company === null) {
    throw new Refusal(`no company has the name or the id '${nameOrId}'; see ${PENSTOCK} companies list`);
  }
  return company;
}

/** Finds the id of a company for a filter; returns undefined if `nameOrId` is undefined. */
export async function findCompanyId(database: Database, nameOrId?: string): Promise<string | undefined> {
  return nameOrId === undefined ? undefined : (await findCompany(database, nameOrId)).id;
}

/**
 * Finds a workspace by its name or its id.
 * @throws {Refusal} if no workspace matches
 */
export async function findWorkspace({ prisma }: Database, nameOrId: string): Promise<Workspace> {
  const workspace =
    (await prisma.workspace.findUnique({ where: { name: nameOrId } })) ??
    (validate(nameOrId) ? await prisma.workspace.findUnique({ where: { id: nameOrId } }) : null);
  if (workspace === null) {
    throw new Refusal(`no workspace has the name or the id '${nameOrId}'; see ${PENSTOCK} workspaces list`);
  }
  return workspace;
}

/** Finds the id of a workspace for a filter; returns undefined if `nameOrId` is undefined. */
export async function findWorkspaceId(database: Database, nameOrId?: string): Promise<string | undefined> {
  return nameOrId === undefined ? undefined : (await findWorkspace(database, nameOrId)).id;
}

/** Reads the names of workspaces, by id. */
export async function namesOfWorkspaces({ prisma }: Database, ids: string[]): Promise<Map<string, string>> {
  const workspaces = await prisma.workspace.findMany({ where: { id: { in: [...new Set(ids)] } } });
  return new Map(workspaces.map((workspace) => [workspace.id, workspace.name]));
}

/** The installation that a command connects to. */
export interface Installation {
  config: Config;
  databaseUrl: string;
  database: Database;
}

/** Maximum number of connections of a command to Postgres. Commands run few statements in parallel. */
const POOL_SIZE = 2;

/** Error codes of a stopped embedded Postgres: no socket, a closed port, or another server on its port. */
const GONE = ['ENOENT', 'ECONNREFUSED', 'UNPROVEN_SERVER', '28000', '28P01', '3D000'];

/**
 * Connects to the database of DATABASE_URL, or else to the embedded database in DATA_DIR, runs `work`, and disconnects.
 * @throws {Refusal} if the database cannot be reached or has no Penstock tables
 */
export async function withInstallation(work: (installation: Installation) => Promise<void>): Promise<void> {
  await withDatabase(async (installation) => {
    const { rows } = await installation.database.pool.query<{ found: boolean }>(
      "select to_regclass('workspaces') is not null as found",
    );
    if (!rows[0]?.found) {
      throw new Refusal(`the database has no tables of Penstock yet; create them with ${PENSTOCK} migrate`);
    }
    await work(installation);
  });
}

/** Works like `withInstallation`, but does not require the Penstock tables. */
export async function withDatabase(work: (installation: Installation) => Promise<void>): Promise<void> {
  const config = readConfig();
  const databaseUrl = findDatabaseUrl(config);
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
  const isEmbedded = config.DEPLOYMENT_FORM === 'embedded';
  // The stored address of an embedded Postgres stays after Postgres has stopped.
  if (isEmbedded && GONE.includes(code ?? '')) return nothingRuns(config);
  const where = isEmbedded ? 'DATA_DIR' : 'DATABASE_URL';
  return new Refusal(`the database of ${where} cannot be reached: ${describeFailure(error)}`);
}

function nothingRuns(config: Config): Refusal {
  const folder = path.resolve(config.DATA_DIR);
  return new Refusal(
    `no Penstock is running on ${folder}; start it with ${START_COMMAND} or set DATABASE_URL`,
  );
}

/** Returns the actor for the audit log: the operating system user that runs the command. */
export function commandLine(): Actor {
  return { kind: 'operator', name: userInfo().username, via: 'command_line' };
}

/**
 * Runs `work` in a Prisma transaction that also stores its audit entries.
 * @throws every error of `work`, after a rollback
 */
export function change<T>(
  database: Database,
  work: (tx: Prisma.TransactionClient) => Promise<Changed<T>>,
): Promise<T> {
  return changeAs({ database, actor: commandLine() }, work);
}
