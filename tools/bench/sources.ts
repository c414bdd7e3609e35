/**
 * Measures the memory of sources: reads rows of about 300 bytes from files of each format, and from a
 * Postgres if one is given, each in a separate process, and prints rows per second and the peak resident
 * memory.
 *
 *   node dist/tools/bench/sources.js [rows, default 1000000] [postgres://…, whose table penstock_bench is replaced]
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { DuckDBInstance } from '@duckdb/node-api';
import pg from 'pg';
import { openSource } from '../../src/integrations/open-source.ts';
import type { Credentials, FileFormat, SourceDefinition } from '../../src/integrations/source.ts';
import { createReach } from '../../src/platform/reach.ts';

const TABLE = 'penstock_bench';
const [first, second] = process.argv.slice(2);
if (first === 'read') await read(JSON.parse(second!));
else await main(Number(first ?? 1_000_000), second);

interface Task {
  definition: SourceDefinition;
  credentials?: Credentials;
}

async function main(rows: number, url: string | undefined): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-bench-'));
  try {
    const tasks = [
      await writeCsv(folder, rows),
      await writeNdjson(folder, rows),
      await writeParquet(folder, rows),
    ];
    if (url) tasks.push(await fillPostgres(url, rows));
    for (const task of tasks) {
      const { stdout, stderr } = spawnSync(
        process.execPath,
        [fileURLToPath(import.meta.url), 'read', JSON.stringify(task)],
        {
          encoding: 'utf8',
        },
      );
      process.stdout.write(stdout || stderr);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function read({ definition, credentials }: Task): Promise<void> {
  const started = performance.now();
  const source = await openSource(definition, credentials, {
    serviceIdField: 'service_id',
    scratchBytes: 10_737_418_240,
    reach: createReach({ refused: 'none' }),
  });
  let rows = 0;
  let early = 0;
  for await (const some of source.rowsSince(undefined, {
    batch: 1000,
    signal: new AbortController().signal,
  })) {
    rows += some.length;
    if (rows >= 50_000 && early === 0) early = process.memoryUsage.rss();
  }
  await source.close();
  const seconds = (performance.now() - started) / 1000;
  const mebibytes = (bytes: number) => Math.round(bytes / 1_048_576);
  const name = 'format' in definition ? definition.format : definition.type;
  process.stdout.write(
    `${name.padEnd(9)} ${rows} rows, ${Math.round(rows / seconds)} rows/s, resident: ${mebibytes(early)} MiB after 50,000 rows, ${mebibytes(process.memoryUsage.rss())} MiB after all, at most ${Math.round(process.resourceUsage().maxRSS / 1024)} MiB\n`,
  );
}

function row(index: number, rows: number): [id: string, updatedAt: string, payload: string] {
  // The rows are not in the order of time, so they must be sorted.
  const moment = (index * 7919) % rows;
  const payload = JSON.stringify({ index, note: 'n'.repeat(200), tags: ['a', 'b'] });
  return [`user-${index}`, new Date(Date.UTC(2026, 0, 1) + moment).toISOString(), payload];
}

async function writeLines(file: string, lines: Iterable<string>): Promise<void> {
  const stream = createWriteStream(file);
  for (const line of lines) if (!stream.write(`${line}\n`)) await once(stream, 'drain');
  stream.end();
  await once(stream, 'finish');
}

async function writeCsv(folder: string, rows: number): Promise<Task> {
  const file = path.join(folder, 'rows.csv');
  function* lines() {
    yield 'EXTERNAL_ID,UPDATED_AT,PAYLOAD';
    for (let index = 0; index < rows; index += 1) {
      const [id, updatedAt, payload] = row(index, rows);
      yield `${id},${updatedAt},"${payload.replaceAll('"', '""')}"`;
    }
  }
  await writeLines(file, lines());
  return fileTask(file, 'csv');
}

async function writeNdjson(folder: string, rows: number): Promise<Task> {
  const file = path.join(folder, 'rows.ndjson');
  function* lines() {
    for (let index = 0; index < rows; index += 1) {
      const [EXTERNAL_ID, UPDATED_AT, payload] = row(index, rows);
      yield JSON.stringify({ EXTERNAL_ID, UPDATED_AT, PAYLOAD: JSON.parse(payload) });
    }
  }
  await writeLines(file, lines());
  return fileTask(file, 'ndjson');
}

async function writeParquet(folder: string, rows: number): Promise<Task> {
  const file = path.join(folder, 'rows.parquet');
  const instance = await DuckDBInstance.create(':memory:', { memory_limit: '512MiB' });
  const connection = await instance.connect();
  await connection.run(
    `copy (select 'user-' || index as external_id, timestamptz '2026-01-01 00:00:00Z' + to_milliseconds((index * 7919) % ${rows}) as updated_at,
       json_object('index', index, 'note', md5(index::varchar) || repeat('n', 168)) as payload from range(${rows}) rows(index))
     to '${file}' (format parquet)`,
  );
  connection.closeSync();
  instance.closeSync();
  return fileTask(file, 'parquet');
}

function fileTask(file: string, format: FileFormat): Task {
  return { definition: { type: 'folder', path: file, format } };
}

async function fillPostgres(url: string, rows: number): Promise<Task> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`drop table if exists ${TABLE}`);
  await client.query(
    `create table ${TABLE} as select 'user-' || index as external_id,
       timestamptz '2026-01-01 00:00:00Z' + (index::bigint * 7919 % $1) * interval '1 ms' as updated_at,
       json_build_object('index', index, 'note', repeat('n', 200)) as payload from generate_series(1, $1::int) index`,
    [rows],
  );
  await client.end();
  const { hostname, port, pathname, username, password } = new URL(url);
  return {
    definition: {
      type: 'postgres',
      host: hostname,
      port: Number(port || 5432),
      database: pathname.slice(1),
      table: TABLE,
      tls: 'off',
    },
    credentials: { user: decodeURIComponent(username), password: decodeURIComponent(password) },
  };
}
