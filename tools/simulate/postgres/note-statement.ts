import type { Trace } from '../trace.ts';
import type { Result, Statement } from './gate.ts';

/** Adds lines to the trace for statements that show a step of fences, attempts, streams or tombstones. */
export function noteStatement(
  trace: Trace,
  by: string,
  { statement: { name, values = [] }, result: { rows, rowCount } }: { statement: Statement; result: Result },
): void {
  switch (name) {
    case 'announce-arrival': {
      const [fence, lane] = values;
      const isPassed = rows[0]?.passed === true;
      trace.note(isPassed ? 'arrived at a fence that is passed' : 'arrived', { fence, lane, by });
      return;
    }
    case 'begin-attempts':
      for (const { id, count } of rows)
        trace.note('earlier attempt found', { kind: values[0], id, others: count });
      return;
    case 'lease-destinations':
      for (const { id } of rows) trace.note('stream leased', { destination: id, by });
      return;
    case 'advance-destination': {
      const what = rowCount === 1 ? 'delivery acknowledged' : 'acknowledgement refused';
      trace.note(what, { destination: values[2], by });
      return;
    }
    case 'give-back-destination':
      trace.note('stream given back', { destination: values[2], by });
      return;
    case 'finish-merged':
    case 'finish-deleted':
      if (rowCount) trace.note('tombstones cleaned up', { kind: name.slice('finish-'.length), by, rowCount });
      return;
  }
}
