import type { SourceRow } from '../../src/integrations/source.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Caller } from '../../src/operations/operation.ts';
import { pack } from '../../src/queue/pack.ts';
import type { Run } from '../../src/store/syncs/find-run.ts';
import type { RowError, ShownRow, StagedChunk } from '../../src/store/syncs/stage-chunk.ts';
import { fingerprintOf, tally } from './fingerprint.ts';
import type { RowJudge } from './judge-row.ts';
import { namesOf } from './names-of.ts';

/** Row errors of one run that are kept; all are counted. */
const MAX_ERRORS = 100_000;

/** Characters of a failed row's payload that are kept. */
const MAX_SHOWN = 1000;

/** Where a run stands with the last chunk that was made of its rows, whether that has taken effect or not. */
export interface Position {
  rows: number;
  failed: number;
  /** The newest UPDATED_AT so far. */
  newest: string | undefined;
}

export interface ChunkMaking {
  run: Pick<Run, 'id' | 'kind' | 'updateExistingOnly' | 'workspaceId'>;
  caller: Caller;
  judge: RowJudge;
  lanes: number;
  maxEnvelopeObjects: number;
}

/** Judges rows and packs what can be applied. `position` moves on behind them. */
export function makeChunk(rows: SourceRow[], position: Position, making: ChunkMaking): StagedChunk {
  const { run, caller, judge, lanes, maxEnvelopeObjects } = making;
  const objects: AcceptedObject[] = [];
  const shown: Record<string, ShownRow> = {};
  const errors: RowError[] = [];
  let failed = 0;
  let bytes = 0;
  rows.forEach((row, index) => {
    const number = position.rows + index + 1;
    const verdict = judge(row, index, caller, run);
    if ('error' in verdict) {
      if (position.failed + failed++ < MAX_ERRORS)
        errors.push({ ...show(row, number), reason: verdict.error });
      return;
    }
    objects.push(verdict.object);
    shown[verdict.object.id] = show(row, number);
    bytes += row.payload?.length ?? 0;
  });
  const newest = rows.reduce(later, position.newest);
  const moved = newest !== position.newest;
  position.rows += rows.length;
  position.failed += failed;
  position.newest = newest;

  const request = {
    request_id: run.id,
    workspace_id: run.workspaceId,
    accepted_at: new Date(caller.now).toISOString(),
  };
  const entries = objects.length === 0 ? [] : pack([{ request, objects, bytes }], lanes, maxEnvelopeObjects);
  return {
    // The ledger knows a fence by its first lane's envelope alone.
    envelopeIds: [...new Set(entries.map(({ id, envelope }) => envelope.fence?.id ?? id))],
    entries,
    rows: shown,
    progress: {
      rows: rows.length,
      failed,
      errors,
      ...(newest !== undefined && { lastTimestamp: newest }),
      boundary: {
        moved,
        newest: counted(rows.filter(({ updatedAt }) => updatedAt !== undefined && updatedAt === newest)),
        unreadable: counted(rows.filter(({ updatedAt }) => updatedAt === undefined)),
      },
    },
  };
}

/** Times are texts that compare as times do. */
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
    updated_at: updatedAt ?? (broken ? null : (unreadable ?? null)),
    identifiers: namesOf(identifiers),
    identifier: named.length > 0 ? named.join(', ').slice(0, MAX_SHOWN) : null,
    payload: (payload ?? broken?.text)?.slice(0, MAX_SHOWN) ?? null,
  };
}
