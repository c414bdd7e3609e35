import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { copyIn } from '../copy-in.ts';
import { costBetween, readCpu } from '../cpu.ts';
import type { Environment } from '../environment.ts';
import type { Figure } from '../figure.ts';

/** Rows of one COPY and one commit. */
const ROWS_PER_COMMIT = 10_000;
/** Rows of one protocol message. */
const ROWS_PER_CHUNK = 500;
/** Number of different event rows that are used as a pattern. */
const SAMPLE = 20_000;

const makeTable = `
  create table if not exists copied_events (like events including all) partition by range (id);
  create table if not exists copied_events_default partition of copied_events default;
  truncate copied_events`;

const readSample = `
  select workspace_id::text, profile_id::text, name, "time"::text, app_id, properties::text
  from events limit $1`;

const copy = 'copy copied_events (workspace_id, id, profile_id, name, "time", app_id, properties) from stdin';

type Sample = [
  workspace: string,
  profile: string,
  name: string,
  time: string,
  app: string | null,
  text: string | null,
];

/**
 * Measures the ceiling: event rows as Penstock stores them, with new ids, by COPY over one connection into a
 * table of the same definition, with one durable commit per 10,000 rows. The text is created in advance.
 * @throws {Error} if there are no events to use as a pattern
 */
export async function measureCopy(
  databaseUrl: string,
  rows: number,
  { postgresPid }: Pick<Environment, 'postgresPid'>,
): Promise<Figure> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    await client.query(makeTable);
    const sample = await client.query<Sample>({ text: readSample, values: [SAMPLE], rowMode: 'array' });
    if (sample.rows.length === 0) throw new Error('there are no events to copy');
    const batches = makeBatches(sample.rows, rows);
    const cpuBefore = readCpu({ postgres: postgresPid });
    const own = process.cpuUsage();
    const start = performance.now();
    for (const chunks of batches) await copyIn(client, copy, chunks);
    const seconds = (performance.now() - start) / 1000;
    const { user, system } = process.cpuUsage(own);
    const cpuAfter = readCpu({ postgres: postgresPid });
    const cost = costBetween(cpuBefore, cpuAfter, (user + system) / 1e6, { rows, seconds });
    const counted = await client.query<{ rows: number }>(
      'select count(*)::integer as rows from copied_events',
    );
    const stored = counted.rows[0]!.rows;
    if (stored !== rows) throw new Error(`COPY stored ${stored} of ${rows} rows`);
    return { value: stored / seconds, unit: '/s', detail: { rows: stored, seconds, ...cost } };
  } finally {
    await client.query('drop table if exists copied_events').catch(() => {});
    await client.end();
  }
}

/** Returns one array of chunks per commit. */
function makeBatches(sample: Sample[], rows: number): Buffer[][] {
  const batches: Buffer[][] = [];
  for (let first = 0; first < rows; first += ROWS_PER_COMMIT) {
    const chunks: Buffer[] = [];
    const end = Math.min(rows, first + ROWS_PER_COMMIT);
    for (let row = first; row < end; row += ROWS_PER_CHUNK) {
      let text = '';
      for (let index = row; index < Math.min(end, row + ROWS_PER_CHUNK); index++) {
        const [workspace, ...rest] = sample[index % sample.length]!;
        text += `${[workspace, uuidv7(), ...rest].map(toField).join('\t')}\n`;
      }
      chunks.push(Buffer.from(text));
    }
    batches.push(chunks);
  }
  return batches;
}

/** Formats a value for COPY. */
function toField(value: string | null): string {
  if (value === null) return '\\N';
  return value
    .replaceAll('\\', '\\\\')
    .replaceAll('\t', '\\t')
    .replaceAll('\n', '\\n')
    .replaceAll('\r', '\\r');
}
