import type { Pool } from '../../store/database.ts';
import { listDestinations } from '../../store/stream-destinations.ts';
import { error, type Finding, warning } from './machine.ts';

/** A destination of streams that a person has to look at. */
export interface StreamTrouble {
  workspace: string;
  name: string;
  /** Seconds since the oldest thing that it has not got took effect. */
  lag: number;
  /** Vain tries in a row. */
  failures: number;
  lastError: string | null;
  /** Transactions that were trimmed before it got them. */
  lost: number;
}

/** Destinations that are looked at, the oldest. */
const MOST_LISTED = 200;

/** Seconds: as PenstockStreamLags has it. */
const FAR_BEHIND = 300;

/** Those that fail, are far behind or have lost something; one that a person has paused is none of them. */
export async function streamsInTrouble(pool: Pool): Promise<StreamTrouble[]> {
  const all = await listDestinations(pool, { limit: MOST_LISTED });
  return all
    .filter(({ lost, state, failures, lag, gatherMs }) => {
      if (lost > 0) return true;
      return state === 'active' && (failures > 0 || lag > FAR_BEHIND + gatherMs / 1000);
    })
    .map(({ workspace, name, lag, failures, lastError, lost }) => ({
      ...{ workspace, name, lag, failures, lastError, lost },
    }));
}

/** One finding for each, the gravest that it has. */
export function judgeStreams(troubles: StreamTrouble[]): Finding[] {
  return troubles.map(({ workspace, name, lag, failures, lastError, lost }) => {
    const stream = `the stream ${name} (${workspace})`;
    if (lost > 0)
      return error(
        'streams',
        `${stream} has not got ${lost} transactions, which the log no longer has`,
        'See PenstockStreamLost in docs/runbook.md.',
      );
    const behind = `${Math.round(lag)} s behind`;
    if (failures > 0)
      return warning(
        'streams',
        `${stream} has failed ${failures} times in a row and is ${behind}: ${lastError ?? 'unknown'}`,
        'Mend the receiver, then penstock streams resume, which tries at once.',
      );
    return warning(
      'streams',
      `${stream} is ${behind}, and its receiver takes what it gets`,
      'A sync process gives way while the machine is full: see penstock_stream_yielded_seconds_total, STREAM_YIELD_SECONDS and PenstockStreamLags in docs/runbook.md.',
    );
  });
}
