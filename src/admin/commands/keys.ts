import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { messageOf } from '../../platform/log.ts';
import { permissions } from '../../schemas/permissions.ts';
import { apiKeyColumns, makeApiKey, revokeApiKey, type ShownApiKey } from '../../store/api-keys.ts';
import type { Database } from '../../store/database.ts';
import {
  addNoun,
  addVerb,
  PENSTOCK,
  parseId,
  parseIpAllowlist,
  parseName,
  parsePermissions,
  Refusal,
  refuseTaken,
} from '../command.ts';
import { commandLine, findWorkspace, withInstallation } from '../installation.ts';
import { addList, printRow, type Row } from '../output.ts';

export function addKeys(program: Command): void {
  const noun = addNoun(program, 'keys', {
    sentence: 'Create, list and revoke API keys. To change permissions or the allowlist, create a new key.',
    example: 'keys list --workspace default',
  });
  addVerb(noun, 'create', {
    sentence: 'Create an API key and show its secret once.',
    example:
      'keys create --workspace default --permissions users.track,users.merge --ip-allowlist 10.0.0.0/8',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace of the key')
    .requiredOption('--permissions <list>', 'names separated by commas, or all', parsePermissions)
    .option('--name <name>', 'name for humans', parseName, 'API key')
    .option(
      '--secret-file <path>',
      'file with an existing secret that clients already use; - reads standard input',
    )
    .option(
      '--ip-allowlist <list>',
      'addresses and subnets from which it can be used, separated by commas (default: any)',
      parseIpAllowlist,
    )
    .action(create);
  addList(noun, {
    one: 'key',
    many: 'keys',
    sentence: 'List the API keys, oldest first, without their secrets.',
    example: 'keys list --workspace default --json',
    owner: 'workspace',
    find: (prisma, page) => prisma.apiKey.findMany({ ...page, select: apiKeyColumns }),
    rowOf,
    cellsOf: (key) => ({
      api_key_id: key.id,
      workspace: key.workspace.name,
      name: key.name,
      identifier: key.identifier,
      permissions: brief(key.permissions),
      state: key.revokedAt === null ? 'active' : 'revoked',
      last_seen_at: key.lastSeenAt?.toISOString() ?? null,
    }),
  });
  addVerb(noun, 'revoke', {
    sentence: 'Revoke an API key permanently. Takes effect within KEY_CACHE_MS.',
    example: 'keys revoke 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('[id]', 'id of the key', parseId)
    .option('--id <id>', 'id of the key, as an option', parseId)
    .option('--identifier <identifier>', 'first characters of the key, as keys list shows them')
    .action(revoke);
}

interface CreateOptions {
  workspace: string;
  permissions: string[];
  name: string;
  secretFile?: string;
  ipAllowlist?: string[];
  json?: boolean;
}

/** Characters of a secret that somebody else chose: fewer could be guessed, and more are no header. */
const SECRET = /^[\x21-\x7e]{32,500}$/;

/** Never an argument: those of a program are seen by everybody on its machine. @throws {Refusal} */
function readSecret(path: string): string {
  let text: string;
  try {
    text = readFileSync(path === '-' ? 0 : path, 'utf8');
  } catch (error) {
    throw new Refusal(`--secret-file: ${messageOf(error)}`);
  }
  const secret = text.trim();
  if (!SECRET.test(secret))
    throw new Refusal('--secret-file: a secret must have 32 to 500 characters without spaces, on one line');
  return secret;
}

async function create(options: CreateOptions): Promise<void> {
  const { secretFile } = options;
  const own = secretFile === undefined ? undefined : readSecret(secretFile);
  await withInstallation(async ({ database }) => {
    const workspace = await findWorkspace(database, options.workspace);
    const { name, permissions: given, ipAllowlist = [] } = options;
    const { secret, key } = await makeApiKey(database, commandLine(), {
      ...{ workspaceId: workspace.id, name, permissions: given, ipAllowlist },
      ...(own !== undefined && { secret: own }),
    }).catch(refuseTaken('another key already has this secret'));
    if (own !== undefined) return printRow(options.json, rowOf(key));
    printRow(
      options.json,
      { api_key: secret, ...rowOf(key) },
      'Save the api_key now: it is not stored and cannot be shown again.',
    );
  });
}

async function revoke(
  argument: string | undefined,
  options: { id?: string; identifier?: string; json?: boolean },
): Promise<void> {
  if (argument !== undefined && options.id !== undefined)
    throw new Refusal('name the key once: by its id or with --id');
  await withInstallation(async ({ database }) => {
    const named = argument === undefined ? options : { ...options, id: argument };
    const id = await findKeyId(database, named);
    const key = await revokeApiKey(database, commandLine(), id);
    printRow(options.json, rowOf(key));
  });
}

/** Identifiers are short and can meet: one that fits several keys is no answer. */
async function findKeyId({ prisma }: Database, named: { id?: string; identifier?: string }): Promise<string> {
  if ((named.id === undefined) === (named.identifier === undefined)) {
    throw new Refusal('name one key: by its id (keys revoke <id>) or with --identifier');
  }
  const found = await prisma.apiKey.findMany({
    where: named.id ? { id: named.id } : { identifier: named.identifier ?? '' },
    select: { id: true },
    take: 10,
  });
  const [first, ...others] = found;
  if (first === undefined) {
    throw new Refusal(
      `no key has the ${named.id ? 'id' : 'identifier'} '${named.id ?? named.identifier}'; see ${PENSTOCK} keys list`,
    );
  }
  if (others.length > 0) {
    const ids = found.map((key) => key.id).join(', ');
    throw new Refusal(`several keys have the identifier '${named.identifier}'; name one with --id: ${ids}`);
  }
  return first.id;
}

/** Returns how many permissions a key has, for a table. */
function brief(given: string[]): string {
  return permissions.every((permission) => given.includes(permission)) ? 'all' : String(given.length);
}

function rowOf(key: ShownApiKey): Row {
  return {
    api_key_id: key.id,
    workspace: key.workspace.name,
    name: key.name,
    identifier: key.identifier,
    permissions: key.permissions,
    ip_allowlist: key.ipAllowlist,
    created_at: key.createdAt.toISOString(),
    last_seen_at: key.lastSeenAt?.toISOString() ?? null,
    revoked_at: key.revokedAt?.toISOString() ?? null,
  };
}
