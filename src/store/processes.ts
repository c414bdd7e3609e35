import type { Pool } from './database.ts';

/** The Procfile's processes that run for long. */
export type ProcessName = 'web' | 'worker' | 'sync' | 'board';

/** What stays the same for the life of a process. */
export interface FleetProcess {
  /** A UUID of this life: a process that is started again has another. */
  id: string;
  name: ProcessName;
  host: string;
  pid: number;
  /** Release, as package.json has it. */
  version: string;
}

/** A high-water mark of load shedding, and what is held against it. */
export interface MarkLevel {
  value: number;
  mark: number;
  /** jobs, percent, ms, bytes or objects. */
  unit: string;
  /** Whether work is refused for it. */
  over: boolean;
}

/** A lane that a worker has open. */
export interface HeldLane {
  lane: number;
  /** When it was opened, in ISO 8601 by the worker's clock. */
  since: string;
}

/** What a process says of itself each time. */
export interface Figures {
  /** Where its /healthz, /readyz and /metrics are, as `host:port`; null: nowhere. */
  address: string | null;
  /** Of a worker: lanes of which it has applied something since ten seconds. In order. */
  lanes: number[];
  /** Of a worker: those that it has open, in order; null for all others, and for a release that does not say so. */
  held: HeldLane[] | null;
  /** What it cannot do without and does not have: `redis`, `queue`, `migrations`. */
  missing: string[];
  /** Since its start: accepted by web, applied by a worker, handed to the lanes by sync; 0 for the board. */
  objects: number;
  /** Of those, since it said so the time before. */
  objectsPerSecond: number;
  /** Requests that it answered with 429 or 503 since its start; 0 for all but web. */
  refused: number;
  /** Of those, since it said so the time before. */
  refusedPerSecond: number;
  /** Of web, by name; null for all others. */
  marks: Record<string, MarkLevel> | null;
  residentBytes: number;
  /** 0 to 1: share of the time since the time before for which its event loop was at work. */
  loopBusy: number;
}

/** A process as `listProcesses` shows it. */
export interface SeenProcess extends FleetProcess, Figures {
  startedAt: Date;
  seenAt: Date;
  /** Since it said something, by the store's clock. */
  silentSeconds: number;
}

/** Seconds between two rows of a process. */
export const BEAT_SECONDS = 5;

/** Seconds of silence from which on a process counts as gone; it has missed three rows by then. */
export const SILENT_SECONDS = 20;

/**
 * By primary key. It registers the process, too. A row that was forgotten while the store was away is there again. What
 * was counted of it as gone is taken back, since the row counts it once more.
 */
const beat = `
  with beaten as (
  insert into processes (id, name, host, pid, version, address, lanes, missing, objects, objects_per_second,
    resident_bytes, loop_busy, refused, refused_per_second, marks, held, started_at, seen_at)
  values ($1::uuid, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::integer[], $8::text[], $9::bigint,
    $10::real, $11::bigint, $12::real, $13::bigint, $14::real, $15::jsonb, $18::jsonb, pg_catalog.statement_timestamp(),
    pg_catalog.statement_timestamp())
  on conflict (id) do update set
    address = excluded.address,
    lanes = excluded.lanes,
    missing = excluded.missing,
    objects = excluded.objects,
    objects_per_second = excluded.objects_per_second,
    resident_bytes = excluded.resident_bytes,
    loop_busy = excluded.loop_busy,
    refused = excluded.refused,
    refused_per_second = excluded.refused_per_second,
    marks = excluded.marks,
    held = excluded.held,
    seen_at = excluded.seen_at
  returning xmax = 0 as "isNew"
  ), back as (
    update departed_processes set
      objects = greatest(0, departed_processes.objects - $16::bigint),
      refused = greatest(0, departed_processes.refused - $17::bigint)
    from beaten
    where beaten."isNew" and departed_processes.name = $2::text and ($16::bigint > 0 or $17::bigint > 0)
  )
  select (extract(epoch from pg_catalog.clock_timestamp()) * 1000)::float8 as now`;

/** What a process has said of itself before. */
type Told = Pick<Figures, 'objects' | 'refused'>;

/**
 * Says that the process is there, and how it is. The first time registers it.
 * @param told what it said the last time; absent: it is the first
 * @returns the store's clock, in epoch milliseconds
 */
export async function beatProcess(
  pool: Pool,
  { id, name, host, pid, version }: FleetProcess,
  { told = { objects: 0, refused: 0 }, ...figures }: Figures & { told?: Told | undefined },
): Promise<number> {
  const { address, lanes, missing, objects, objectsPerSecond, residentBytes, loopBusy } = figures;
  const { refused, refusedPerSecond, marks, held } = figures;
  const values = [
    ...[id, name, host, pid, version, address, lanes, missing],
    ...[objects, objectsPerSecond, residentBytes, loopBusy],
    ...[refused, refusedPerSecond, marks && JSON.stringify(marks)],
    ...[told.objects, told.refused, held && JSON.stringify(held)],
  ];
  const { rows } = await pool.query<{ now: number }>({ name: 'beat-process', text: beat, values });
  return rows[0]!.now;
}

/** By primary key. What it had done stays counted. */
const leave = `
  with gone as (delete from processes where processes.id = $1::uuid returning processes.*)
  insert into departed_processes (name, objects, refused)
  select gone.name, greatest(gone.objects, $2::bigint), greatest(gone.refused, $3::bigint) from gone
  on conflict (name) do update set
    objects = departed_processes.objects + excluded.objects,
    refused = departed_processes.refused + excluded.refused`;

/** Takes the row of a process away that ends as it should, with what it has done in the end. */
export async function leaveFleet(
  pool: Pool,
  id: string,
  { objects, refused }: Pick<Figures, 'objects' | 'refused'>,
): Promise<void> {
  await pool.query({ name: 'leave-fleet', text: leave, values: [id, objects, refused] });
}

/** The same of all that said nothing for an hour. */
const forget = `
  with gone as (
    delete from processes
    where processes.seen_at < pg_catalog.statement_timestamp() - interval '1 hour'
    returning processes.*
  )
  insert into departed_processes (name, objects, refused)
  select gone.name, sum(gone.objects), sum(gone.refused) from gone group by gone.name order by gone.name
  on conflict (name) do update set
    objects = departed_processes.objects + excluded.objects,
    refused = departed_processes.refused + excluded.refused`;

/** Drops those that fell silent an hour ago. */
export async function forgetProcesses(pool: Pool): Promise<void> {
  await pool.query({ name: 'forget-processes', text: forget });
}

/** The table has those of one hour. */
const list = `
  select processes.id, processes.name, processes.host, processes.pid, processes.version, processes.address,
    processes.lanes, processes.missing, processes.objects::float8 as objects,
    processes.objects_per_second as "objectsPerSecond", processes.resident_bytes::float8 as "residentBytes",
    processes.loop_busy as "loopBusy", processes.refused::float8 as refused,
    processes.refused_per_second as "refusedPerSecond", processes.marks, processes.held, processes.started_at as "startedAt", processes.seen_at as "seenAt",
    greatest(0, extract(epoch from pg_catalog.statement_timestamp() - processes.seen_at))::float8 as "silentSeconds"
  from (
    select * from processes order by processes.seen_at desc, processes.id limit $1::integer
  ) as processes
  order by processes.name, processes.host, processes.started_at, processes.id`;

/**
 * The processes of the installation, by name, host and start. With those that fell silent within the last hour:
 * `silentSeconds` above `SILENT_SECONDS` tells them.
 *
 * @param limit how many at most, those that were heard last
 */
export async function listProcesses(pool: Pick<Pool, 'query'>, limit = 500): Promise<SeenProcess[]> {
  const { rows } = await pool.query<SeenProcess>({ name: 'list-processes', text: list, values: [limit] });
  return rows;
}

/**
 * Living workers of one lane: who took it last, since one that was killed still counts as alive for a while. Where nobody
 * says so, those that have applied something of it lately.
 */
export function workersOf(processes: SeenProcess[], lane: number): { worker: SeenProcess; since?: string }[] {
  const workers = processes.filter(
    ({ name, silentSeconds }) => name === 'worker' && silentSeconds < SILENT_SECONDS,
  );
  const holders = workers.flatMap((worker) => {
    const since = worker.held?.find((one) => one.lane === lane)?.since;
    return since === undefined ? [] : [{ worker, since }];
  });
  const [latest] = holders.sort((one, other) => other.since.localeCompare(one.since));
  if (latest) return [latest];
  return workers
    .filter(({ held, lanes }) => held === null && lanes.includes(lane))
    .map((worker) => ({ worker }));
}

/** Lanes that no living worker has open, in order; empty while one is there that does not say what it has open. */
export function unworkedLanes(processes: SeenProcess[], lanes: number): number[] {
  const workers = processes.filter(
    ({ name, silentSeconds }) => name === 'worker' && silentSeconds < SILENT_SECONDS,
  );
  if (workers.some(({ held }) => held === null)) return [];
  const worked = new Set(workers.flatMap(({ held }) => held?.map(({ lane }) => lane) ?? []));
  return Array.from({ length: lanes }, (_, lane) => lane).filter((lane) => !worked.has(lane));
}

const anyWorker = `
  select from processes
  where processes.name = 'worker'
    and processes.seen_at > pg_catalog.statement_timestamp() - make_interval(secs => $1::integer)
  limit 1`;

/** Whether a worker has said a moment ago that it is there. */
export async function hasWorkers(pool: Pick<Pool, 'query'>): Promise<boolean> {
  const { rowCount } = await pool.query({ name: 'has-workers', text: anyWorker, values: [SILENT_SECONDS] });
  return (rowCount ?? 0) > 0;
}
