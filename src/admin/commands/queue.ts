import { type Command, InvalidArgumentError } from 'commander';
import { settings } from '../../platform/config.ts';
import { confirmLoss } from '../../resources/operator-actions.ts';
import { readTotals } from '../../store/counters.ts';
import { presentMembers, readSpread } from '../../store/installation.ts';
import { listLosses } from '../../store/queue-losses.ts';
import { addNoun, addVerb, parseCount } from '../command.ts';
import { commandLine, withInstallation } from '../installation.ts';
import { printJson, printPage, printRow } from '../output.ts';

/** Maximum number of losses that are shown, newest first. */
const SHOWN = 100;

/** Printed with the number of objects whose order to objects in another lane is not guaranteed. */
const ADVICE =
  'Some objects identified a user in another way than earlier objects, and are in another lane: the order between the two lanes is not guaranteed. ' +
  'If that order matters, identify each user in one way, or use one lane.';

/** Default of `--wait`, in seconds. */
const WAIT = 60;

export function addQueue(program: Command): void {
  const noun = addNoun(program, 'queue', {
    sentence: 'Show the queue, change its number of lanes and shards, and acknowledge losses.',
    example: 'queue show',
  });
  addVerb(noun, 'show', {
    sentence:
      'Show the jobs of each lane, how often users were identified across lanes, and the running processes.',
    example: 'queue show',
  }).action(show);
  addVerb(noun, 'set-lanes', {
    sentence:
      'Change the number of lanes or shards. Waits until no process runs. Fails if a lane still holds jobs, unless only shards are added. Then start all processes with the new LANES and SHARDS.',
    example: 'queue set-lanes 4',
  })
    .argument('<lanes>', `number of lanes, at most ${settings.LANES.maximum}`, parseLanes)
    .option('--shards <number>', `number of shards, at most ${settings.SHARDS.maximum}`, parseShards)
    .option('--wait <seconds>', 'maximum time to wait while processes run', parseCount, WAIT)
    .action(change);
  addVerb(noun, 'losses', {
    sentence: `List the latest ${SHOWN} losses of accepted objects by Redis, newest first.`,
    example: 'queue losses',
  }).action(losses);
  addVerb(noun, 'confirm-loss', {
    sentence: 'Acknowledge a queue loss and all earlier ones, and clear the alert.',
    example: 'queue confirm-loss 1',
  })
    .argument('<number>', 'number of the loss', parseCount)
    .action(confirm);
}

function parseLanes(text: string): number {
  const lanes = parseCount(text);
  const maximum = settings.LANES.maximum;
  if (lanes > maximum) throw new InvalidArgumentError(`Must be a whole number from 1 to ${maximum}.`);
  return lanes;
}

function parseShards(text: string): number {
  const shards = parseCount(text);
  const maximum = settings.SHARDS.maximum;
  if (shards > maximum) throw new InvalidArgumentError(`Must be a whole number from 1 to ${maximum}.`);
  return shards;
}

async function show({ json }: { json?: boolean }): Promise<void> {
  // The queue client is loaded only by commands that use the queue.
  const [{ withQueueConnection }, { readLaneDepths }] = await Promise.all([
    import('../queue.ts'),
    import('../../queue/depth.ts'),
  ]);
  await withInstallation(async (installation) => {
    const { pool } = installation.database;
    const spread = await readSpread(pool);
    const lanes = spread ? spread.lanes / spread.shards : null;
    const shards = spread && spread.shards > 1 ? { shards: spread.shards } : {};
    const processes = (await presentMembers(pool)).map(({ name, host, pid }) => ({ name, host, pid }));
    const { objects, namedElsewhere } = await readTotals(pool);
    const waiting = spread
      ? await withQueueConnection(installation, ({ laneStore }) =>
          readLaneDepths(laneStore, spread.lanes),
        ).catch(() => null)
      : [];
    const laneRows = waiting?.map(({ lane, depth, oldestSeconds }) => ({
      lane,
      waiting: depth,
      oldest_seconds: oldestSeconds,
    }));
    const totals = { lanes, ...shards, objects };
    if (json)
      return printJson({ ...totals, named_elsewhere: namedElsewhere, waiting: laneRows ?? null, processes });
    const counts = { ...totals, 'objects named in more than one way': namedElsewhere };
    printRow(false, counts, namedElsewhere > 0 ? ADVICE : undefined);
    process.stdout.write('\n');
    if (laneRows) printPage(false, 'lanes', { rows: laneRows, next: null });
    else process.stdout.write('the queue cannot be reached; the number of waiting jobs is unknown\n');
    process.stdout.write('\n');
    printPage(false, 'processes', { rows: processes, next: null });
  });
}

async function change(
  lanes: number,
  { shards, wait, json }: { shards?: number; wait: number; json?: boolean },
): Promise<void> {
  // Loaded only by the commands that use the queue, for a fast start of the others.
  const { changeLanes } = await import('../queue.ts');
  await withInstallation(async (installation) => {
    const { before, after } = await changeLanes(installation, {
      ...{ lanes, shards, wait },
      onWait: (hindrance) => void process.stderr.write(`waiting: ${hindrance}\n`),
    });
    const isSharded = before.shards > 1 || after.shards > 1;
    const ofShards = isSharded && { shards: after.shards, shards_before: before.shards };
    const settings = `LANES=${lanes}${isSharded ? ` and SHARDS=${after.shards}` : ''}`;
    printRow(json, { lanes, before: before.lanes, ...ofShards }, `Start every process with ${settings}.`);
  });
}

async function losses({ json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database: { pool } }) => {
    const rows = (await listLosses(pool, SHOWN)).map(({ id, shard, ...loss }) => ({
      number: id,
      ...(shard > 0 && { shard }),
      found: loss.found,
      accepted_from: loss.acceptedFrom,
      accepted_until: loss.acceptedUntil,
      additions_known: loss.additionsKnown,
      additions_found: loss.additionsFound,
      noticed_by: loss.noticedBy,
      confirmed_at: loss.confirmedAt,
    }));
    printPage(json, 'losses', { rows, next: null });
  });
}

async function confirm(number: number, { json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    printRow(json, { confirmed: await confirmLoss({ database, actor: commandLine() }, number) });
  });
}
