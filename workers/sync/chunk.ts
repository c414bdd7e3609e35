import { ApiError } from '../../src/errors.ts';
import type { IntegrationKind, SourceRow } from '../../src/integrations/source.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Caller } from '../../src/operations/operation.ts';
import { createAccept, rowRulesOf } from '../../src/operations/track/accept.ts';
import { usersDelete } from '../../src/operations/users.delete.ts';
import { now } from '../../src/platform/clock.ts';
import { presentTrace } from '../../src/platform/tracing.ts';
import type { LongStrings } from '../../src/profile/attribute-rule.ts';
import { type Packing, packStaged } from '../../src/queue/hand-over.ts';
import type { VendorRules } from '../../src/schemas/vendor-rules.ts';
import type { Pool } from '../../src/store/database.ts';
import type { OutboxChunk, RowError, ShownRow } from '../../src/store/sync-chunks.ts';
import { readRules, type WorkspaceRules } from '../../src/store/sync-lists.ts';
import type { Run } from '../../src/store/sync-runs.ts';
import { fingerprintOf, namesOf, type Refusal, tally, timeOf, toObject, userOf } from './row-object.ts';
import type { Limit } from './throttle.ts';

/**
 * Maximum row errors that are stored per run, and maximum rows with a warning per attempt. All errors are
 * counted.
 */
const MAX_ERRORS = 100_000;

/** Maximum characters of a failed row's payload that are kept. */
const MAX_SHOWN = 1000;

/**
 * Position of a run after the last chunk that was made of its rows, whether or not that chunk has taken
 * effect.
 */
export interface Position {
  rows: number;
  failed: number;
  /** Rows with a warning since this process works on the run. */
  warned: number;
  /** The latest UPDATED_AT so far. */
  newest: string | undefined;
}

export interface ChunkBuilding extends Packing {
  run: Pick<Run, 'id' | 'kind' | 'updateExistingOnly' | 'workspaceId'>;
  caller: Caller;
  judge: RowJudge;
}

/** Validates rows and packs the valid ones. @returns the chunk and the position after its rows */
export function buildChunk(
  rows: SourceRow[],
  position: Position,
  making: ChunkBuilding,
): { chunk: OutboxChunk; position: Position } {
  const { run, caller, judge } = making;
  const judging = { caller, kind: run.kind, updateExistingOnly: run.updateExistingOnly };
  const objects: AcceptedObject[] = [];
  const shown: Record<string, ShownRow> = {};
  const errors: RowError[] = [];
  const warnings: RowError[] = [];
  let failed = 0;
  let bytes = 0;
  rows.forEach((row, index) => {
    const number = position.rows + index + 1;
    const verdict = judge(row, index, judging);
    if ('error' in verdict) {
      if (position.failed + failed++ < MAX_ERRORS)
        errors.push({ ...show(row, number), reason: verdict.error });
      return;
    }
    objects.push(verdict.object);
    shown[verdict.object.id] = show(row, number);
    if (verdict.warnings && position.warned + warnings.length < MAX_ERRORS)
      warnings.push({ ...show(row, number), reason: verdict.warnings.join('; ') });
    bytes += row.payload?.length ?? 0;
  });
  const newest = rows.reduce(later, position.newest);
  const moved = newest !== position.newest;
  const positionAfter = {
    rows: position.rows + rows.length,
    failed: position.failed + failed,
    warned: position.warned + warnings.length,
    newest,
  };

  const request = {
    request_id: run.id,
    workspace_id: run.workspaceId,
    accepted_at: new Date(caller.now).toISOString(),
    ...presentTrace(),
  };
  const chunk = {
    ...packStaged({ request, objects, bytes }, making),
    rows: shown,
    progress: {
      rows: rows.length,
      failed,
      errors,
      ...(warnings.length > 0 && { warnings }),
      ...(newest !== undefined && { lastTimestamp: newest }),
      boundary: {
        moved,
        newest: counted(rows.filter(({ updatedAt }) => updatedAt !== undefined && updatedAt === newest)),
        unreadable: counted(rows.filter(({ updatedAt }) => updatedAt === undefined)),
      },
    },
  };
  return { chunk, position: positionAfter };
}

/** The texts of times sort like the times. */
function later(newest: string | undefined, { updatedAt }: SourceRow): string | undefined {
  return updatedAt !== undefined && (newest === undefined || updatedAt > newest) ? updatedAt : newest;
}

function counted(rows: SourceRow[]): Record<string, number> {
  return Object.fromEntries(tally(rows.map(fingerprintOf)));
}

function show({ updatedAt, unreadable, broken, identifiers, payload }: SourceRow, number: number): ShownRow {
  const named = Object.entries(identifiers).map(([column, value]) => `${column.toUpperCase()}=${value}`);
  return {
    number,
    updatedAt: updatedAt ?? (broken ? null : (unreadable ?? null)),
    identifiers: namesOf(identifiers),
    identifier: named.length > 0 ? named.join(', ').slice(0, MAX_SHOWN) : null,
    payload: (payload ?? broken?.text)?.slice(0, MAX_SHOWN) ?? null,
  };
}

interface RowValidatorOptions {
  caller: Caller;
  kind: IntegrationKind;
  updateExistingOnly: boolean;
}

/** The object of a row, with warnings about truncated or omitted values, or the reason for its refusal. */
type RowVerdict = { object: AcceptedObject; warnings?: readonly string[] } | Refusal;

/**
 * Creates a function that validates rows with the code of /users/track and /users/delete. The validators are
 * compiled once, by this call.
 *
 * @param serviceIdField API name of the service id
 */
export function createRowValidator(
  serviceIdField: string,
  { longStrings, rules }: { longStrings?: LongStrings; rules?: VendorRules } = {},
) {
  const accept = createAccept(serviceIdField, { longStrings, rules: rules && rowRulesOf(rules) });
  const deletion = usersDelete(serviceIdField);

  /** @param index position of the row in its chunk */
  return function judge(row: SourceRow, index: number, options: RowValidatorOptions): RowVerdict {
    const { caller, kind, updateExistingOnly } = options;
    if (kind === 'deletes') return judgeDeletion(row, caller);
    const made = toObject(row, { kind, serviceIdField, updateExistingOnly });
    return 'error' in made ? made : accept[kind](made.object, index, caller);
  };

  function judgeDeletion(row: SourceRow, caller: Caller): RowVerdict {
    const time = timeOf(row);
    if ('error' in time) return time;
    const named = userOf(row, { kind: 'deletes', serviceIdField });
    if ('error' in named) return named;
    const [field, value] = Object.entries(named.user)[0]!;
    const arrays: Record<string, string> = {
      external_id: 'external_ids',
      user_alias: 'user_aliases',
      service_id: `${serviceIdField}s`,
    };
    try {
      const { objects } = deletion.plan(caller, { [arrays[field]!]: [value] });
      return { object: objects[0]! };
    } catch (error) {
      const [refused] = error instanceof ApiError ? error.rejected : [];
      if (!refused) throw error;
      return { error: refused.type };
    }
  }
}

type RowJudge = ReturnType<typeof createRowValidator>;

/** The rules of a workspace for its rows, cached for as long as a web process caches an API key. */
export interface Rules {
  /** Returns the caller with which rows are validated now. */
  caller(): Promise<Caller>;
  /** Returns the rate limit of /users/track; undefined for the default. */
  limit(): Promise<Limit | undefined>;
}

/** @param cacheMs milliseconds for which the rules are cached */
export function createRules(pool: Pool, run: Pick<Run, 'id' | 'workspaceId'>, cacheMs: number): Rules {
  let cached: { at: number; rules: WorkspaceRules; caller: Omit<Caller, 'now'> } | undefined;

  async function load() {
    const at = performance.now();
    if (cached && at - cached.at <= cacheMs) return cached;
    const rules = await readRules(pool, run.workspaceId);
    const [groups, blocked] = [new Set(rules.groups), new Set(rules.blocked)];
    const caller = {
      workspaceId: run.workspaceId,
      requestId: run.id,
      hasGroup: (id: string) => groups.has(id),
      // Only operations on subscription groups use it.
      channelOf: () => undefined,
      isBlocked: (externalId: string) => blocked.has(externalId),
    };
    cached = { at, rules, caller };
    return cached;
  }

  return {
    caller: async () => ({ ...(await load()).caller, now: now() }),
    limit: async () => (await load()).rules.limit ?? undefined,
  };
}
