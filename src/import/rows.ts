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

/** Options for converting rows to objects. */
export interface RowOptions extends MappingRules {
  /** Delimiter of a CSV file; detected from the header if absent. */
  delimiter: string | undefined;
  /** Vendor format of the file. */
  vendor: VendorName | undefined;
}

/** A row as objects of the API, or `refused` with the reason why it cannot be converted. */
export interface MappedRow extends RawRow {
  /** Name of the file, or of the entry of the archive. */
  file: string;
  /**
   * Returns the column that maps to a field and its value in the row. Absent if each row names its own
   * columns.
   */
  locate?: Locate;
  sent?: Sent[];
  /** Field that caused the refusal, if a single field did. */
  field?: string;
}

/** Finds the column of a row that maps to a field, and its value. */
type Locate = (row: RawRow, field: string) => { column: string; value: Json } | undefined;

/** The fields that the columns of a part map to, for display. */
export interface Routing {
  file: string;
  /** Warnings about columns whose names differ from a field only in case. */
  warnings: readonly string[];
  columns: { column: string; field: string; reading: string }[] | undefined;
}

interface Reading {
  input: Input;
  options: RowOptions;
  /** Number of rows to skip without parsing them. */
  done?: number;
  onRouting?(routing: Routing): void;
}

/**
 * Reads the rows of a file in order and returns them in batches.
 * @throws {ImportError} if a part cannot be read at all
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
      const sent = orRefusal(() => {
        const parsed = read(row);
        const mapped = 'refused' in parsed ? parsed : mapping(parsed.values);
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
  const contents = options.layout === 'csv' ? 'a header but no rows' : 'no rows';
  throw new NoRows(
    `${input.name} has ${contents}, so nothing was imported; check that the program that writes the file has finished`,
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

/** Converts an unexpected error into the refusal of one row, so that the other rows are imported. */
function orRefusal<T>(read: () => T): T | { refused: string } {
  try {
    return read();
  } catch (error) {
    if (error instanceof ImportError) throw error;
    return { refused: `the row cannot be read: ${(error as Error).message}` };
  }
}

/** Maps the vendor's columns to API fields, except for columns that `--map` names. */
function withVendor(options: RowOptions, columns: readonly string[] | undefined): MappingRules {
  const { vendor, map, serviceIdField } = options;
  const named = vendor ? vendorFormats[vendor].columns(serviceIdField) : [];
  const there = named.filter(
    ({ column }) => columns?.includes(column) && !map.some((one) => one.column === column),
  );
  // Objects of a vendor format are translated as a whole.
  const layout = vendor ? vendorFormats[vendor].layout : options.layout;
  return { ...options, layout, map: [...map, ...there] };
}

function sentOf(object: Values, { vendor, type }: RowOptions): { sent: Sent[] } | Refusal {
  return vendor ? vendorFormats[vendor].translate(object, type) : { sent: [{ type, object }] };
}

/** The result of validating rows. */
interface JudgedRows {
  objects: AcceptedObject[];
  refused: RefusedRow[];
  /** Number of rows of which a value was truncated or omitted. */
  warned: number;
  /** Characters of the rows whose objects were accepted. */
  size: number;
}

/** Validates one row. Unexpected errors refuse the row. */
export function verdictOf(
  { sent, number, refused, field }: MappedRow,
  judge: RowValidator,
  caller: Caller,
): Verdict {
  if (sent) return orRefusal(() => judge(sent, number - 1, caller));
  return field === undefined ? { refused: refused! } : { refused: refused!, field };
}

/** Validates rows as of one point in time. */
export function validateRows(rows: readonly MappedRow[], judge: RowValidator, caller: Caller): JudgedRows {
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

/**
 * The accepted objects of a row with warnings about truncated or omitted values, or the reason for its
 * refusal.
 */
type Verdict = { objects: AcceptedObject[]; warnings?: readonly string[] } | Refusal;

/**
 * Accepts all objects of a row or refuses the row.
 * @param index position of the row in its file, as dead letters and responses name it
 */
export type RowValidator = (sent: readonly Sent[], index: number, caller: Caller) => Verdict;

type JudgeOne = (object: Values, index: number, caller: Caller) => Verdict;

interface JudgeOptions {
  serviceIdField: string;
  longStrings: LongStrings;
  rules?: VendorRules;
  /** Whether rows of users that do not exist are ignored instead of creating the users. */
  updateExistingOnly: boolean;
}

/**
 * Creates a function that validates objects with the code of /users/track, /users/alias/new,
 * /v2/subscription/status/set and /email/status. The validators are compiled once, by this call.
 */
export function createRowValidator({
  serviceIdField,
  longStrings,
  rules,
  updateExistingOnly,
}: JudgeOptions): RowValidator {
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

/** Validates one object with an operation that rejects whole requests. */
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

/** Names of row fields by the list that holds their value in a request for subscription states. */
const LISTED: Readonly<Record<string, string>> = {
  external_ids: 'external_id',
  emails: 'email',
  phones: 'phone',
};

/**
 * Refuses a row for a rule of the API. If the rule requires one of several fields, the refusal names the
 * first of them.
 */
function refusedBy(refused: string, fields: string): Refusal {
  const [field = ''] = fields.split('|');
  return field === '' ? { refused } : { refused, field: LISTED[field] ?? field };
}

/**
 * Creates a function that returns the caller with which rows are validated. It contains the rules of the
 * workspace, cached for as long as a web process caches an API key.
 * @param cacheMs lifetime of the cache in milliseconds
 */
export function createCallers(pool: Pool, workspaceId: string, cacheMs: number) {
  let cached: { at: number; caller: Omit<Caller, 'now' | 'requestId'> } | undefined;
  return async function callerOf(requestId: string): Promise<Caller> {
    const now = Date.now();
    if (!cached || now - cached.at > cacheMs) {
      const { channels, blocked } = await readRules(pool, workspaceId);
      const refused = new Set(blocked);
      cached = {
        at: now,
        caller: {
          workspaceId,
          hasGroup: (id) => Object.hasOwn(channels, id),
          channelOf: (id) => channels[id],
          isBlocked: (externalId) => refused.has(externalId),
        },
      };
    }
    return { ...cached.caller, requestId, now };
  };
}
