import { ApiError, refusalOf } from '../errors.ts';
import type { AcceptedObject } from '../jobs/envelope.ts';
import { emailStatus } from '../operations/email.status.ts';
import type { Caller, Plan } from '../operations/operation.ts';
import { subscriptionStatusSetV2 } from '../operations/subscription.status.set.v2.ts';
import { createAccept, rowRulesOf } from '../operations/track/accept.ts';
import { usersAliasNew } from '../operations/users.alias.new.ts';
import type { LongStrings } from '../profile/attribute-rule.ts';
import { isGiven } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import type { VendorRules } from '../schemas/vendor-rules.ts';
import type { Pool } from '../store/database.ts';
import { readRules } from '../store/sync-lists.ts';
import { createMapping, type MappingRules } from './mapping.ts';
import type { Input } from './open-input.ts';
import { type RawRow, type Refusal, readPart, type Values } from './reader.ts';
import type { RefusedRow } from './refused-rows.ts';
import { ImportError, NoRows } from './unpack.ts';
import { type Sent, type VendorName, vendorFormats } from './vendor.ts';

/** How the rows of a file become objects. */
export interface RowOptions extends MappingRules {
  /** Of a CSV file; absent: its header tells. */
  delimiter: string | undefined;
  /** The form of a vendor's own file. */
  vendor: VendorName | undefined;
}

/** One row on its way: what it says, as objects of the API; or `refused`, why it says nothing. */
export interface MappedRow extends RawRow {
  /** The file, or the entry of the archive. */
  file: string;
  /** Finds the column that became a field, and the row's value of it. Absent where each row names its own columns. */
  locate?: Locate;
  sent?: Sent[];
  /** Of what is refused, where one is to blame. */
  field?: string;
}

/** The column of a row that became a field, and what stands there. */
type Locate = (row: RawRow, field: string) => { column: string; value: Json } | undefined;

/** Where the columns of a part go, for people. */
export interface Routing {
  file: string;
  /** Columns of which the name is that of a field but for its case. */
  warnings: readonly string[];
  columns: { column: string; field: string; reading: string }[] | undefined;
}

interface Reading {
  input: Input;
  options: RowOptions;
  /** Rows to pass over, without a look at what they say. */
  done?: number;
  onRouting?(routing: Routing): void;
}

/**
 * The rows of a file in their order, in batches.
 * @throws {ImportError} when a part cannot be read at all
 */
export async function* mapRows({
  input,
  options,
  done = 0,
  onRouting,
}: Reading): AsyncGenerator<MappedRow[]> {
  let passed = 0;
  for await (const part of input.parts()) {
    const { name: file, columns, unnamed, rows, read } = await readPart(part, options);
    const rules = withVendor(options, columns);
    const ignore = rules.ignore.flatMap((name) => (name === '' ? unnamed : name));
    const { mapping, routes, warnings } = createMapping({ ...rules, ignore }, columns, file);
    onRouting?.({ file, columns: routes, warnings });
    const locate: Locate | undefined = columns && ((row, field) => located(read(row), routes, field));
    const mapRow = (row: RawRow): MappedRow => {
      const sent = ofOneRow(() => {
        const said = read(row);
        const mapped = 'refused' in said ? said : mapping(said.values);
        return 'refused' in mapped ? mapped : sentOf(mapped.object, options);
      });
      return locate ? { ...row, file, locate, ...sent } : { ...row, file, ...sent };
    };
    for await (const batch of rows) {
      const left = batch.slice(Math.max(0, done - passed));
      passed += batch.length;
      if (left.length > 0) yield left.map(mapRow);
    }
  }
  if (passed > 0) return;
  const found = options.layout === 'csv' ? 'a header but no rows' : 'no rows';
  throw new NoRows(
    `${input.name} has ${found}, so nothing was imported; check that the program that writes the file has finished`,
  );
}

function located(
  read: ReturnType<Awaited<ReturnType<typeof readPart>>['read']>,
  routes: ReturnType<typeof createMapping>['routes'],
  field: string,
): ReturnType<Locate> {
  const route = routes?.find((one) => one.field === field) ?? routes?.find(({ path }) => path[0] === field);
  if (!route || 'refused' in read) return undefined;
  return { column: route.column, value: read.values[route.column] ?? null };
}

/** What a row says that nothing is prepared for is a fault of this row alone: the others go on. */
function ofOneRow<T>(read: () => T): T | { refused: string } {
  try {
    return read();
  } catch (error) {
    if (error instanceof ImportError) throw error;
    return { refused: `the row cannot be read: ${(error as Error).message}` };
  }
}

/** What a vendor calls otherwise becomes what the API calls it, unless a person has said what it becomes. */
function withVendor(options: RowOptions, columns: readonly string[] | undefined): MappingRules {
  const { vendor, map, serviceIdField } = options;
  const named = vendor ? vendorFormats[vendor].columns(serviceIdField) : [];
  const there = named.filter(
    ({ column }) => columns?.includes(column) && !map.some((one) => one.column === column),
  );
  // An object of the vendor's is translated whole.
  const layout = vendor ? vendorFormats[vendor].layout : options.layout;
  return { ...options, layout, map: [...map, ...there] };
}

function sentOf(object: Values, { vendor, type }: RowOptions): { sent: Sent[] } | Refusal {
  return vendor ? vendorFormats[vendor].translate(object, type) : { sent: [{ type, object }] };
}

/** What rows have come to. */
interface JudgedRows {
  objects: AcceptedObject[];
  refused: RefusedRow[];
  /** Rows of which something was cut or left out. */
  warned: number;
  /** Characters of the rows whose objects these are. */
  size: number;
}

/** What becomes of one row, whatever it says. */
export function verdictOf(
  { sent, number, refused, field }: MappedRow,
  judge: Judge,
  caller: Caller,
): Verdict {
  if (sent) return ofOneRow(() => judge(sent, number - 1, caller));
  return field === undefined ? { refused: refused! } : { refused: refused!, field };
}

/** Judges rows as of one moment. */
export function judgeRows(rows: readonly MappedRow[], judge: Judge, caller: Caller): JudgedRows {
  const judged: JudgedRows = { objects: [], refused: [], warned: 0, size: 0 };
  for (const row of rows) {
    const verdict = verdictOf(row, judge, caller);
    if ('refused' in verdict) {
      judged.refused.push(refusedRow(row, verdict));
      continue;
    }
    judged.objects.push(...verdict.objects);
    if (verdict.warnings) judged.warned += 1;
    judged.size += row.text.length;
  }
  return judged;
}

function refusedRow(
  row: MappedRow,
  { refused: reason, field = null }: { refused: string; field?: string | null },
): RefusedRow {
  const { file, number, line, text } = row;
  const { column = null, value = null } = (field !== null && row.locate?.(row, field)) || {};
  return { file, row: number, line, column, field, value, reason, text };
}

/** What becomes of the objects of one row, and what was cut or left out of it; or why it is refused. */
type Verdict = { objects: AcceptedObject[]; warnings?: readonly string[] } | Refusal;

/**
 * All of a row's objects, or none.
 * @param index the row's place in its file, as dead letters and answers name it
 */
export type Judge = (sent: readonly Sent[], index: number, caller: Caller) => Verdict;

type JudgeOne = (object: Values, index: number, caller: Caller) => Verdict;

interface JudgeOptions {
  serviceIdField: string;
  longStrings: LongStrings;
  rules?: VendorRules;
  /** Nobody who is not there is made. */
  updateExistingOnly: boolean;
}

/**
 * Judges objects by the very code of /users/track, /users/alias/new, /v2/subscription/status/set and /email/status. The
 * validators are compiled here, once.
 */
export function createJudge({ serviceIdField, longStrings, rules, updateExistingOnly }: JudgeOptions): Judge {
  const accept = createAccept(serviceIdField, { longStrings, rules: rules && rowRulesOf(rules) });
  const states = subscriptionStatusSetV2();
  const addresses = emailStatus();
  const aliases = usersAliasNew();

  const tracked =
    (kind: 'attributes' | 'events' | 'purchases'): JudgeOne =>
    (object, index, caller) => {
      if (updateExistingOnly) object._update_existing_only = true;
      const verdict = accept[kind](object, index, caller);
      if ('error' in verdict) return refusedBy(verdict.error, verdict.field);
      const { object: accepted, warnings } = verdict;
      return { objects: [accepted], ...(warnings && { warnings }) };
    };

  function setState(object: Values, index: number, caller: Caller): Verdict {
    const { external_id, email, phone, email_subscribe, ...others } = object;
    const { user_alias, [serviceIdField]: serviceId, ...setting } = others;
    const isGroup = isGiven(setting.subscription_group_id);
    if (isGiven(email_subscribe) && !isGroup)
      return judgeByPlan(index, () =>
        addresses.plan(caller, { email: email ?? null, subscription_state: email_subscribe }),
      );
    const hasOther = isGiven(user_alias) || isGiven(serviceId);
    if (isGroup && hasOther && ![external_id, email, phone].some(isGiven)) {
      const name = { user_alias: user_alias ?? null, [serviceIdField]: serviceId ?? null };
      return judges.users({ ...name, subscription_groups: [setting] }, index, caller);
    }
    const listed = (field: string, value: Json | undefined) => isGiven(value) && { [field]: [value] };
    const element = {
      ...setting,
      ...(listed('external_ids', external_id) || listed('emails', email) || listed('phones', phone)),
    };
    return judgeByPlan(index, () => states.plan(caller, { subscription_groups: [element] }));
  }

  const judges: Record<Sent['type'], JudgeOne> = {
    users: tracked('attributes'),
    events: tracked('events'),
    purchases: tracked('purchases'),
    subscriptions: setState,
    aliases: (object, index, caller) =>
      judgeByPlan(index, () => aliases.plan(caller, { user_aliases: [object] })),
  };

  return function judge(sent, index, caller) {
    const [first, ...others] = sent;
    if (first && others.length === 0) return judges[first.type](first.object, index, caller);
    const objects: AcceptedObject[] = [];
    const warnings: string[] = [];
    for (const { type, object } of sent) {
      const verdict = judges[type](object, index, caller);
      if ('refused' in verdict) return verdict;
      objects.push(...verdict.objects);
      warnings.push(...(verdict.warnings ?? []));
    }
    return warnings.length > 0 ? { objects, warnings } : { objects };
  };
}

/** Judges one element as an operation does that refuses whole requests. */
function judgeByPlan(index: number, plan: () => Plan): Verdict {
  try {
    const { objects, rejected } = plan();
    const [refused] = rejected;
    return refused
      ? refusedBy(refused.type, refused.field)
      : { objects: objects.map((one) => ({ ...one, index })) };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const [refused = { type: error.message, ...refusalOf(error) }] = error.rejected;
    return refusedBy(refused.type, refused.field);
  }
}

/** Fields of a row, by the list that holds their value in a request for subscription states. */
const LISTED: Readonly<Record<string, string>> = {
  external_ids: 'external_id',
  emails: 'email',
  phones: 'phone',
};

/** Refuses a row by a rule of the API. If the rule asks for one of several fields, the row lacks the first of them. */
function refusedBy(refused: string, fields: string): Refusal {
  const [field = ''] = fields.split('|');
  return field === '' ? { refused } : { refused, field: LISTED[field] ?? field };
}

/**
 * As whom rows are judged: what the workspace says about them, remembered as long as a web process remembers an API key.
 * @param cacheMs milliseconds
 */
export function createCallers(pool: Pool, workspaceId: string, cacheMs: number) {
  let known: { at: number; caller: Omit<Caller, 'now' | 'requestId'> } | undefined;
  return async function callerOf(requestId: string): Promise<Caller> {
    const now = Date.now();
    if (!known || now - known.at > cacheMs) {
      const { channels, blocked } = await readRules(pool, workspaceId);
      const refused = new Set(blocked);
      known = {
        at: now,
        caller: {
          workspaceId,
          hasGroup: (id) => Object.hasOwn(channels, id),
          channelOf: (id) => channels[id],
          isBlocked: (externalId) => refused.has(externalId),
        },
      };
    }
    return { ...known.caller, requestId, now };
  };
}
