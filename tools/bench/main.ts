/**
 * Measures Penstock in turns with a naive pipeline on the same stack and with COPY into the same table, on a
 * Postgres, a Redis and processes of its own. Every figure counts rows in Postgres.
 *
 *   npm run bench
 *
 * The last results are in generated/bench-results.json and docs/evidence/performance.md.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { settings as documented } from '../../src/platform/config.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { runCommand } from '../../test/setup/run-command.ts';
import { writeCharts, writeShapes } from './chart/write.ts';
import { startEnvironment } from './environment.ts';
import type { BenchRow, Figure } from './figure.ts';
import { createFleets, type Fleets } from './fleets.ts';
import { describeMachine } from './machine.ts';
import { type BenchOptions, readOptions } from './options.ts';
import { waitForQuiet } from './quiet.ts';
import { describeFigure, describeResults } from './report.ts';
import { type Bounds, outOfBounds, type Results, summarize } from './results.ts';
import { attributeRows } from './rows/attributes.ts';
import { backlogRows } from './rows/backlog.ts';
import { bareHttpRow } from './rows/bare-http.ts';
import { fenceRows } from './rows/fences.ts';
import { growthRows } from './rows/growth.ts';
import { identityRows } from './rows/identity.ts';
import { importRows } from './rows/imports.ts';
import { latencyRows } from './rows/latency.ts';
import { loadCurveRows } from './rows/load-curve.ts';
import { pinnedRows } from './rows/pinned.ts';
import { pipelineRows } from './rows/pipelines.ts';
import { queueMemoryRow } from './rows/queue-memory.ts';
import { shapeRows } from './rows/shapes.ts';
import { soakRow } from './rows/soak.ts';
import { startRows } from './rows/starts.ts';
import { streamedRows } from './rows/streamed.ts';
import { syncRow } from './rows/sync.ts';
import { tenantRows } from './rows/tenants.ts';
import { tracedRows } from './rows/traced.ts';
import { type Size, sizeOf } from './size.ts';

const folder = path.join(packageRoot, 'tools/bench');
const SECONDS = 8;
const QUICK_SECONDS = 3;

async function main(): Promise<void> {
  const options = readOptions(process.argv);
  const size = sizeOf(options.seconds ?? (options.quick ? QUICK_SECONDS : SECONDS), options.syncedRows);
  const bounds: Bounds = JSON.parse(readFileSync(path.join(folder, 'bounds.json'), 'utf8'));
  const running: Stoppable[] = [];
  let stopped: Promise<void> | undefined;
  const stopAll = () => {
    stopped ??= stopInReverse(running);
    return stopped;
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void stopAll().then(() => process.exit(1)));
  }
  try {
    const environment = await startEnvironment(options.postgres);
    running.push(environment);
    const fleets = createFleets(environment, options.set, size);
    running.push(fleets);
    const starts = startRows(fleets);
    running.push(starts);
    const sync = syncRow(fleets, environment, options.set, size);
    running.push(sync);
    const shapes = shapeRows(fleets, environment, { size, base: options.base });
    const others = [
      ...pipelineRows(fleets, environment, size),
      bareHttpRow(environment, size),
      ...attributeRows(fleets, environment, size),
      ...latencyRows(fleets, environment, size),
      queueMemoryRow(fleets, environment, size),
      ...backlogRows(fleets, size),
      ...identityRows(fleets, size),
      ...(options.fences ? fenceRows(fleets, size) : []),
      sync.row,
      ...starts.rows,
      ...(options.tenants ? tenantRows(fleets, environment, size) : []),
      ...(options.traced ? tracedRows(fleets, environment, size) : []),
      ...(options.streamed ? streamedRows(fleets, environment, size) : []),
      ...(options.pinned ? pinnedRows(fleets, environment, size) : []),
      ...(options.curve ? loadCurveRows(fleets, environment, size) : []),
      ...(options.soak === undefined ? [] : [soakRow(fleets, environment, { size, minutes: options.soak })]),
      ...(options.growth.length > 0 ? growthRows(fleets, environment, size, options.growth) : []),
    ];
    const chosen = options.shapes ? shapes : options.import ? importRows(fleets, environment, size) : others;
    const results = await measureAll(fleets, options, size, chosen);
    process.stdout.write(describeResults(results, bounds));
    write(results, options);
    const worse = options.check ? outOfBounds(results, bounds) : [];
    for (const line of worse) process.stderr.write(`${line}\n`);
    if (worse.length > 0) process.exitCode = 1;
  } finally {
    await stopAll();
  }
}

interface Stoppable {
  stop(): Promise<void> | void;
}

async function stopInReverse(running: Stoppable[]): Promise<void> {
  for (const each of running.toReversed()) await each.stop();
}

/**
 * Measures the rows in turns (A B C, A B C), so that a temporary slowdown of the machine affects all of them.
 */
async function measureAll(
  fleets: Fleets,
  options: BenchOptions,
  size: Size,
  all: BenchRow[],
): Promise<Results> {
  const { only } = options;
  const rows = all.filter(({ name }) => only.length === 0 || only.some((part) => name.includes(part)));
  if (rows.length === 0) throw new Error(`no row has a name with ${only.join(' or ')}`);
  const rounds = options.quick ? 1 : options.rounds;
  const measured = new Map<string, { what: string; figures: Figure[] }>();
  const take = async (round: number, { name, what, measure }: BenchRow) => {
    await waitForQuiet(options.patience);
    const figure = await measure();
    process.stdout.write(describeFigure(round, name, figure));
    if (!measured.has(name)) measured.set(name, { what, figures: [] });
    measured.get(name)!.figures.push(figure);
  };
  for (let round = 1; round <= rounds; round++) {
    for (const row of rows) if (!row.once) await take(round, row);
  }
  for (const row of rows) {
    if (!row.once) continue;
    // A failure must not discard the rounds, which took so long.
    await take(1, row).catch((error: Error) => {
      process.stderr.write(`${row.name}: ${error.message}\n`);
      process.exitCode = 1;
    });
  }
  return {
    command: ['npm run bench', ...(process.argv.length > 2 ? ['--'] : []), ...process.argv.slice(2)].join(
      ' ',
    ),
    date: new Date().toISOString().slice(0, 10),
    machine: await describeMachine((await fleets.ours()).databaseUrl),
    settings: {
      LANES: documented.LANES.default,
      MAX_ENVELOPE_OBJECTS: documented.MAX_ENVELOPE_OBJECTS.default,
      ...options.set,
      ...size,
    },
    ...summarize(measured),
  };
}

/** Writes the results. Only a full run becomes the record, whose chart the docs show. */
function write(results: Results, options: BenchOptions): void {
  const { quick, only, output, set, syncedRows, shapes } = options;
  const full =
    !quick &&
    !options.import &&
    only.length === 0 &&
    syncedRows === undefined &&
    Object.keys(set).length === 0;
  const record = output === undefined && full;
  const file = record
    ? path.join(packageRoot, 'generated', shapes ? 'bench-shapes.json' : 'bench-results.json')
    : output;
  if (file) writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
  if (!record) return;
  if (shapes) writeShapes(results);
  else writeCharts(results);
}

await runCommand(main);
