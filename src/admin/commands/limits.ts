import { type Command, Option } from 'commander';
import { type BucketName, buckets } from '../../schemas/limits.ts';
import { resetRateLimits, setRateLimit } from '../../store/rate-limits.ts';
import { parseCount } from '../arguments.ts';
import { commandLine } from '../audit.ts';
import { addNoun, addVerb } from '../command.ts';
import { findWorkspace, withInstallation } from '../lookup.ts';
import { printPage, printRow, type Row } from '../output.ts';

export function addLimits(program: Command): void {
  const noun = addNoun(program, 'limits', {
    sentence: 'Show and change how many requests a workspace may make: of one bucket, in one window.',
    example: 'limits list --workspace default',
  });
  addVerb(noun, 'set', {
    sentence: 'Give a workspace a limit of its own for one bucket.',
    example: 'limits set --workspace default --bucket users.track --requests 100000 --window-seconds 60',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .addOption(bucketOption().makeOptionMandatory())
    .requiredOption('--requests <number>', 'requests that it may make in a window', parseCount)
    .requiredOption('--window-seconds <number>', 'length of the window in seconds', parseCount)
    .action(set);
  addVerb(noun, 'list', {
    sentence:
      'List the limits that hold for a workspace; without one, those that every workspace starts with.',
    example: 'limits list --workspace default --json',
  })
    .option('--workspace <workspace>', 'name or id of the workspace')
    .action(list);
  addVerb(noun, 'reset', {
    sentence: 'Take back the limits that a workspace was given, of one bucket or of all.',
    example: 'limits reset --workspace default --bucket users.track',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .addOption(bucketOption())
    .action(reset);
}

interface SetOptions {
  workspace: string;
  bucket: BucketName;
  requests: number;
  windowSeconds: number;
  json?: boolean;
}

async function set({ bucket, requests, windowSeconds, ...options }: SetOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId, name } = await findWorkspace(database, options.workspace);
    await setRateLimit(database, commandLine(), { workspaceId, bucket, requests, windowSeconds });
    printRow(options.json, { workspace: name, ...rowOf(bucket, { requests, windowSeconds }, true) });
  });
}

async function list({ workspace, json }: { workspace?: string; json?: boolean }): Promise<void> {
  if (workspace === undefined) return printLimits(json, []);
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    printLimits(json, await database.prisma.rateLimit.findMany({ where: { workspaceId } }));
  });
}

async function reset(options: { workspace: string; bucket?: BucketName; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, options.workspace);
    const { bucket } = options;
    await resetRateLimits(database, commandLine(), { workspaceId, bucket });
    printLimits(options.json, await database.prisma.rateLimit.findMany({ where: { workspaceId } }));
  });
}

interface Limit {
  requests: number;
  windowSeconds: number;
}

type Override = Limit & { bucket: string };

/** Every bucket with the limit that holds for a workspace with these overrides. */
function printLimits(json: boolean | undefined, overrides: Override[]): void {
  const given = new Map(overrides.map((override) => [override.bucket, override]));
  const rows = Object.entries(buckets).map(([bucket, limit]) =>
    rowOf(bucket, given.get(bucket) ?? limit, given.has(bucket)),
  );
  printPage(json, 'limits', { rows, next: null });
}

function rowOf(bucket: string, { requests, windowSeconds }: Limit, overridden: boolean): Row {
  return { bucket, requests, window_seconds: windowSeconds, overridden };
}

function bucketOption(): Option {
  return new Option('--bucket <bucket>', 'endpoints that share the limit').choices(Object.keys(buckets));
}
