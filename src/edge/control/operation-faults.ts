import { AsyncLocalStorage } from 'node:async_hooks';
import { ApiError, type entriesOf, type Rejection } from '../../errors.ts';
import type { Operation, Plan, QueuedOperation, Reply } from '../../operations/operation.ts';
import type { Json } from '../../profile/json.ts';
import type { Database } from '../../store/database.ts';

/** An object that is refused even if it is valid. */
export interface ObjectError {
  /** Absent: the first array of the request. */
  input_array?: string;
  index: number;
  /** Text of the error. */
  type?: string;
}

const DEFAULT_TYPE = 'refused by a fault of penstock dev';

/** Faults of a request that its operation applies. */
interface OperationFaults {
  errors?: readonly ObjectError[];
  /** The database that reads use. */
  database?: Database | undefined;
}

const current = new AsyncLocalStorage<OperationFaults>();

/** Handles a request with faults that its operation applies. */
export const withOperationFaults = (faults: OperationFaults, handle: () => void): void =>
  current.run({ ...current.getStore(), ...faults }, handle);

/** Returns an operation that applies the faults of its request. */
export function faulty(operation: Operation): Operation {
  return operation.kind === 'queued' ? refusing(operation) : reading(operation);
}

function reading(operation: Extract<Operation, { kind: 'direct' }>): Operation {
  if (!operation.readsOnly && operation.method !== 'GET') return operation;
  return {
    ...operation,
    handle(caller, input, resources) {
      const { database = resources.database } = current.getStore() ?? {};
      return operation.handle(caller, input, { ...resources, database });
    },
  };
}

/** Replaces each object that must be refused by `null` in the body, so that the operation itself refuses it. */
function spoil(body: Record<string, Json>, errors: readonly ObjectError[]) {
  const changed = { ...body };
  /** Texts by array and index. */
  const texts = new Map<string, string>();
  for (const { index, type = DEFAULT_TYPE, ...given } of errors) {
    const name = given.input_array ?? Object.keys(body).find((key) => Array.isArray(body[key]));
    const elements = name === undefined ? undefined : changed[name];
    if (!Array.isArray(elements) || index >= elements.length) continue;
    changed[name!] = elements.with(index, null);
    texts.set(`${name} ${index}`, type);
  }
  return { body: changed, texts };
}

type Texts = ReadonlyMap<string, string>;

const withTexts = <Entry extends { type: string; input_array: string; index: number }>(
  entries: readonly Entry[],
  texts: Texts,
): Entry[] =>
  entries.map((one) => ({ ...one, type: texts.get(`${one.input_array} ${one.index}`) ?? one.type }));

function planWithTexts(plan: Plan, texts: Texts): Plan {
  const rejected = withTexts(plan.rejected, texts);
  const reply = (made: Reply): Reply => replyWithTexts(made, texts);
  const { replyOf } = plan;
  return {
    ...plan,
    rejected,
    reply: reply(plan.reply),
    ...(replyOf && { replyOf: (errors: ReadonlyMap<string, string>) => reply(replyOf(errors)) }),
  };
}

/** Replaces the texts of entries in all lists of an answer, whatever the operation names the list. */
function replyWithTexts(reply: Reply, texts: Texts): Reply {
  const { body } = reply;
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return reply;
  const members = Object.entries(body).map(([name, value]) => [
    name,
    Array.isArray(value) && value.every(isEntry)
      ? withTexts(value as ReturnType<typeof entriesOf>, texts)
      : value,
  ]);
  return { ...reply, body: Object.fromEntries(members) };
}

const isEntry = (value: Json): boolean =>
  typeof value === 'object' && value !== null && 'input_array' in value && 'index' in value;

function errorWithTexts(error: unknown, texts: Texts): unknown {
  if (!(error instanceof ApiError) || error.rejected.length === 0) return error;
  const { entry, message, fact, headers } = error;
  const rejected: Rejection[] = withTexts(error.rejected, texts);
  return new ApiError(entry, { message, fact, headers, rejected });
}

function refusing(operation: QueuedOperation): Operation {
  const { steps } = operation;
  return {
    ...operation,
    plan(caller, body) {
      const { errors } = current.getStore() ?? {};
      if (!errors) return operation.plan(caller, body);
      const { body: spoilt, texts } = spoil(body, errors);
      try {
        return planWithTexts(operation.plan(caller, spoilt), texts);
      } catch (error) {
        throw errorWithTexts(error, texts);
      }
    },
    ...(steps && {
      *steps(caller, body) {
        const { errors } = current.getStore() ?? {};
        if (!errors) return yield* steps(caller, body);
        const { body: spoilt, texts } = spoil(body, errors);
        try {
          return planWithTexts(yield* steps(caller, spoilt), texts);
        } catch (error) {
          throw errorWithTexts(error, texts);
        }
      },
    }),
  };
}
