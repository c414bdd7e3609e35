import type { IntegrationKind } from '../../src/integrations/definition.ts';
import type { SourceRow } from '../../src/integrations/source.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Caller } from '../../src/operations/operation.ts';
import { createAccept } from '../../src/operations/track/accept.ts';
import { usersDelete } from '../../src/operations/users.delete.ts';
import { type Refusal, timeOf, toObject, userOf } from './row-object.ts';

export interface RowJudgeOptions {
  kind: IntegrationKind;
  updateExistingOnly: boolean;
}

/** What becomes of a row. */
export type RowVerdict = { object: AcceptedObject } | Refusal;

/**
 * Judges rows by the very code of /users/track and /users/delete. The validators are compiled here, once.
 *
 * @param serviceIdField wire name of the service id
 */
export function createRowJudge(serviceIdField: string) {
  const accept = createAccept(serviceIdField);
  const deletion = usersDelete(serviceIdField);

  /** @param index the row's place in its chunk */
  return function judge(row: SourceRow, index: number, caller: Caller, options: RowJudgeOptions): RowVerdict {
    const { kind, updateExistingOnly } = options;
    if (kind === 'deletes') return judgeDeletion(row, caller);
    const made = toObject(row, { kind, serviceIdField, updateExistingOnly });
    return 'error' in made ? made : accept(kind, made.object, index, caller);
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
      const { errors } = error as { errors?: { type: string }[] };
      if (!errors?.[0]) throw error;
      return { error: errors[0].type };
    }
  }
}

export type RowJudge = ReturnType<typeof createRowJudge>;
