import { SourceError } from '../../src/integrations/source.ts';
import { messageOf } from '../../src/log.ts';
import { inTransaction } from '../../src/store/in-transaction.ts';
import { advanceRun } from '../../src/store/syncs/advance-run.ts';
import { type EndedStatus, finishRun } from '../../src/store/syncs/finish-run.ts';
import type { SyncContext } from './context.ts';
import type { Account } from './turn-over.ts';
import type { Worked } from './work-run.ts';

export interface RunEnd {
  status: EndedStatus;
  /** For the owner: why, or what is to be known. */
  message: string | undefined;
}

type Ending = Exclude<Worked, { kind: 'left' | 'lost' }>;

/** What a run has come to. */
export function endOf(worked: Ending, maxRows: number, now: Date): RunEnd {
  switch (worked.kind) {
    case 'cancelled':
      return { status: 'error', message: 'cancelled by the operator' };
    case 'too many rows':
      return {
        status: 'error',
        message: `Limit Exceeded: a run reads at most ${maxRows.toLocaleString('en')} rows; the next one goes on behind them`,
      };
    case 'failed': {
      const { error } = worked;
      if (error instanceof SourceError)
        return { status: error.reason === 'config' ? 'config_error' : 'error', message: error.message };
      return { status: 'error', message: `a mistake of the service: ${messageOf(error)}` };
    }
    default:
      return endOfSource(worked.account, now);
  }
}

function endOfSource({ failed, lastTimestamp }: Account, now: Date): RunEnd {
  const notes: string[] = [];
  if (failed > 0) notes.push(`${failed.toLocaleString('en')} ${failed === 1 ? 'row' : 'rows'} failed`);
  if (lastTimestamp !== undefined && lastTimestamp > now.toISOString())
    notes.push(
      `an UPDATED_AT of ${lastTimestamp} lies in the future: rows with an earlier one are not read any more`,
    );
  return { status: failed > 0 ? 'partial' : 'success', message: notes.join('; ') || undefined };
}

/**
 * Ends a run that stands where the account says and has nothing in the lanes.
 * @returns whether it did
 */
export function endRun({ pool }: SyncContext, { jobId, read }: Account, end: RunEnd): Promise<boolean> {
  return inTransaction(pool, async (tx) => {
    // Holds the run first, so that the second statement sees a chunk that somebody has staged meanwhile.
    const nothing = { read: 0, synced: 0, failed: 0, lastTimestamp: undefined };
    if ((await advanceRun(tx, { jobId, expected: read, ...nothing })) === undefined) return false;
    return finishRun(tx, jobId, end);
  });
}
