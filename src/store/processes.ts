import type { Pool } from './database.ts';

/** Long-running processes of the Procfile. */
export type ProcessName = 'web' | 'worker' | 'sync' | 'board';

/** Properties that do not change while a process runs. */
export interface FleetProcess {
  /** UUID of this run. A restarted process gets a new one. */
  id: string;
  name: ProcessName;
  host: string;
  pid: number;
  /** Release, from package.json. */
  version: string;
}

/** A load shedding threshold and the current value that is compared with it. */
export interface MarkLevel {
  value: number;
  mark: number;
  /** jobs, percent, ms, bytes or objects. */
  unit: string;
  /** Whether requests are rejected because of this threshold. */
  over: boolean;
}

/** A lane that a worker holds. */
export interface HeldLane {
  lane: number;
  /** Time at which the worker opened the lane, in ISO 8601 by the worker's clock. */
  since: string;
}

/** Figures that a process reports with each heartbeat. */
export interface Figures {
  /** Address of /healthz, /readyz and /metrics as `host:port`; null if the process has no such endpoint. */
  address: string | null;
  /** Worker: lanes from which it has applied objects in the last 10 seconds, ascending. */
  lanes: number[];
  /**
   * Worker: the lanes that it holds, ascending. Null for other processes and for releases that do not report
   * it.
   */
  held: HeldLane[] | null;
  /** Required dependencies that are unavailable: `redis`, `queue`, `migrations`. */
  missing: string[];
  /** Objects since the start: accepted by web, applied by a worker, enqueued by sync; 0 for the console. */
  objects: number;
  /** Objects per second since the previous heartbeat. */
  objectsPerSecond: number;
  /** Requests that web answered with 429 or 503 since the start; 0 for other processes. */
  refused: number;
  /** Rejected requests per second since the previous heartbeat. */
  refusedPerSecond: number;
  /** Load levels of web by name; null for other processes. The row of an ended process has its last error instead. */
  marks: Record<string, MarkLevel> | null;
  /** Why Postgres refuses the writes of the process, since an ISO time; null or absent while it accepts them. */
  refusal?: { reason: string; since: string } | null;
  residentBytes: number;
  /** Share of the time since the previous heartbeat in which the event loop was busy, 0 to 1. */
  loopBusy: number;
}

/** A process as `listProcesses` returns it. */
export interface SeenProcess extends FleetProcess, Figures {
  startedAt: Date;
  seenAt: Date;
  /** Seconds since the last heartbeat, by the store's clock. */
  silentSeconds: number;
}

/** Seconds between two heartbeats of a process. */
export const BEAT_SECONDS = 5;

/** Seconds without a heartbeat after which a process counts as gone. It has then missed three heartbeats. */
export const SILENT_SECONDS = 20;

/**
 * Upserts by primary key; the first heartbeat registers the process. A row that was deleted while the store
 * was unavailable is inserted again. Its counts were added to `departed_processes` and are subtracted from
 * there, because the new row includes them.
 */
const beat = `
  with beaten as (
  insert into processes (id, name, host, pid, version, address, lanes, missing, objects, objects_per_second,
    resident_bytes, loop_busy, refused, refused_per_second, marks, held, refusal, started_at, seen_at)
  values ($1::uuid, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::integer[], $8::text[], $9::bigint,
    $10::real, $11::bigint, $12::real, $13::bigint, $14::real, $15::jsonb, $18::jsonb, $19::jsonb, pg_catalog.statement_timestamp(),
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
    refusal = excluded.refusal,
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

/** Counts of the previous heartbeat. */
type PreviousCounts = Pick<Figures, 'objects' | 'refused'>;

/**
 * Records a heartbeat of the process. The first one registers it.
 *
 * @param previous counts of the previous heartbeat; absent for the first heartbeat
 * @returns the store's clock in epoch milliseconds
 */
export async function beatProcess(
  pool: Pool,
  { id, name, host, pid, version }: FleetProcess,
  { previous = { objects: 0, refused: 0 }, ...figures }: Figures & { previous?: PreviousCounts | undefined },
): Promise<number> {
  const { address, lanes, missing, objects, objectsPerSecond, residentBytes, loopBusy } = figures;
  const { refused, refusedPerSecond, marks, held, refusal } = figures;
  const values = [
    ...[id, name, host, pid, version, address, lanes, missing],
    ...[objects, objectsPerSecond, residentBytes, loopBusy],
    ...[refused, refusedPerSecond, marks && JSON.stringify(marks)],
    ...[previous.objects, previous.refused, held && JSON.stringify(held)],
    refusal ? JSON.stringify(refusal) : null,
  ];
  const { rows } = await pool.query<{ now: number }>({ name: 'beat-process', text: beat, values });
  return rows[0]!.now;
}

/** Deletes by primary key and adds the row's counts to `departed_processes`. */
const leave = `
  with gone as (delete from processes where processes.id = $1::uuid returning processes.*)
  insert into departed_processes (name, objects, refused)
  select gone.name, greatest(gone.objects, $2::bigint), greatest(gone.refused, $3::bigint) from gone
  on conflict (name) do update set
    objects = departed_processes.objects + excluded.objects,
    refused = departed_processes.refused + excluded.refused`;

/** Removes the row of a process that shuts down, and keeps its final counts in the totals. */
export async function leaveFleet(
  pool: Pool,
  id: string,
  { objects, refused }: Pick<Figures, 'objects' | 'refused'>,
): Promise<void> {
  await pool.query({ name: 'leave-fleet', text: leave, values: [id, objects, refused] });
}

/** Seconds after which a silent process is removed. */
const FORGOTTEN_SECONDS = 3600;

/** Removes the rows of silent processes and keeps their counts. Rows of ended processes stay for an hour. */
const forget = `
  with gone as (
    delete from processes
    where processes.seen_at < pg_catalog.statement_timestamp() - make_interval(secs => $1::integer)
      and (
        processes.marks -> 'ended' is null
        or processes.seen_at < pg_catalog.statement_timestamp() - interval '${FORGOTTEN_SECONDS} seconds'
      )
    returning processes.*
  ), counted as (
    insert into departed_processes (name, objects, refused)
    select gone.name, sum(gone.objects), sum(gone.refused) from gone group by gone.name order by gone.name
    on conflict (name) do update set
      objects = departed_processes.objects + excluded.objects,
      refused = departed_processes.refused + excluded.refused
  )
  select gone.name, gone.host, gone.pid from gone order by gone.name, gone.host, gone.pid`;

/** A process, as an operator names it. */
export type NamedProcess = Pick<FleetProcess, 'name' | 'host' | 'pid'>;

/**
 * Removes processes that have sent no heartbeat for so many seconds, and returns them.
 * @param seconds an hour by default; `SILENT_SECONDS` removes every process that counts as gone
 */
export async function forgetProcesses(
  pool: Pick<Pool, 'query'>,
  seconds = FORGOTTEN_SECONDS,
): Promise<NamedProcess[]> {
  const { rows } = await pool.query<NamedProcess>({
    ...{ name: 'forget-processes', text: forget, values: [seconds] },
  });
  return rows;
}

/** Rows of a host, which are few. `marks` of an ended process says how it ended. */
const ofHost = `
  select processes.id::text, processes.pid
  from processes
  where processes.name = $1::text and processes.host = $2::text and processes.id <> $3::uuid
    and processes.marks -> 'ended' is null`;

/** Lists the other processes of the same kind and host. */
export async function listSameKind(
  pool: Pick<Pool, 'query'>,
  { id, name, host }: Pick<FleetProcess, 'id' | 'name' | 'host'>,
): Promise<{ id: string; pid: number }[]> {
  const { rows } = await pool.query<{ id: string; pid: number }>({
    ...{ name: 'list-same-kind', text: ofHost, values: [name, host, id] },
  });
  return rows;
}

/** Updates by primary key. A recorded error stays if a second replacement, which finds no file, marks the process too. */
const end = `
  update processes
  set
    marks = jsonb_build_object(
      'ended', jsonb_build_object('reason', coalesce($2::text, processes.marks -> 'ended' ->> 'reason'))
    ),
    missing = '{}',
    held = '[]'
  where processes.id = $1::uuid`;

/**
 * Marks a process as ended: it leaves the list, and is counted for some minutes. A heartbeat of the process reverts this.
 * @param reason its last error; null if the error is unknown
 */
export async function markEnded(
  pool: Pick<Pool, 'query'>,
  { id, reason }: { id: string; reason: string | null },
): Promise<void> {
  await pool.query({ name: 'mark-process-ended', text: end, values: [id, reason] });
}

/** Seconds for which ends are counted. */
export const ENDS_SECONDS = 300;

/** Processes of one kind that ended without stopping. */
export interface EndedProcesses {
  name: ProcessName;
  count: number;
  /** Time of the last heartbeat of the first. */
  since: Date;
  /** Last error of the process that ended last; null if the error is unknown. */
  lastError: string | null;
}

/** The table has the processes of one hour. */
const ends = `
  select processes.name, count(*)::integer as count, min(processes.seen_at) as since,
    (array_agg(processes.marks -> 'ended' ->> 'reason' order by processes.seen_at desc))[1] as "lastError"
  from processes
  where processes.marks -> 'ended' is not null
    and processes.seen_at > pg_catalog.statement_timestamp() - make_interval(secs => $1::integer)
  group by processes.name
  order by processes.name`;

/** Counts the processes that ended without stopping and were replaced, by kind. */
export async function readEnds(pool: Pick<Pool, 'query'>): Promise<EndedProcesses[]> {
  const { rows } = await pool.query<EndedProcesses>({
    ...{ name: 'read-process-ends', text: ends, values: [ENDS_SECONDS] },
  });
  return rows;
}

/** Processes without a heartbeat for an hour are removed, so the table is small. */
const list = `
  select processes.id, processes.name, processes.host, processes.pid, processes.version, processes.address,
    processes.lanes, processes.missing, processes.objects::float8 as objects,
    processes.objects_per_second as "objectsPerSecond", processes.resident_bytes::float8 as "residentBytes",
    processes.loop_busy as "loopBusy", processes.refused::float8 as refused,
    processes.refused_per_second as "refusedPerSecond", processes.marks, processes.held, processes.refusal, processes.started_at as "startedAt", processes.seen_at as "seenAt",
    greatest(0, extract(epoch from pg_catalog.statement_timestamp() - processes.seen_at))::float8 as "silentSeconds"
  from (
    select * from processes
    where processes.marks -> 'ended' is null
    order by processes.seen_at desc, processes.id
    limit $1::integer
  ) as processes
  order by processes.name, processes.host, processes.started_at, processes.id`;

/**
 * Returns the processes of the installation by name, host and start time, without those marked as ended. A process that
 * sends no heartbeats is included until it is removed; its `silentSeconds` exceeds `SILENT_SECONDS`.
 *
 * @param limit maximum number of processes; the latest heartbeats are kept
 */
export async function listProcesses(pool: Pick<Pool, 'query'>, limit = 500): Promise<SeenProcess[]> {
  const { rows } = await pool.query<SeenProcess>({ name: 'list-processes', text: list, values: [limit] });
  return rows;
}

/**
 * Returns the live workers of a lane: the worker that opened it last, because a killed worker still counts as
 * alive for a while. If no worker reports the lane as held, returns workers of older releases that applied
 * objects from it recently.
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

/**
 * Returns the lanes that no live worker holds, ascending. Empty if a live worker does not report the lanes
 * that it holds.
 */
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
    and processes.marks -> 'ended' is null
    and processes.seen_at > pg_catalog.statement_timestamp() - make_interval(secs => $1::integer)
  limit 1`;

/** Returns whether any worker has sent a heartbeat within SILENT_SECONDS. */
export async function hasWorkers(pool: Pick<Pool, 'query'>): Promise<boolean> {
  const { rowCount } = await pool.query({ name: 'has-workers', text: anyWorker, values: [SILENT_SECONDS] });
  return (rowCount ?? 0) > 0;
}

/** The table has the processes of one hour. */
const reports = `
  select processes.id, processes.missing, processes.refusal ->> 'since' as "refusesSince"
  from processes
  where processes.marks -> 'ended' is null and (processes.missing <> '{}' or processes.refusal is not null)
  order by processes.id
  limit $1::integer`;

/** A process with the stores that it misses. */
interface StoreReport {
  id: string;
  missing: string[];
  /** Time of the first refused write; null if Postgres accepts the writes. */
  refusesSince: string | null;
}

/** Lists the processes that miss a store or whose writes Postgres refuses. */
export async function listReports(pool: Pick<Pool, 'query'>, limit = 500): Promise<StoreReport[]> {
  const { rows } = await pool.query<StoreReport>({
    ...{ name: 'list-store-reports', text: reports, values: [limit] },
  });
  return rows;
}
