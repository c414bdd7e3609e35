import type { AcceptedObject } from '../jobs/envelope.ts';
import type { Caller } from '../operations/operation.ts';
import type { Input } from './input.ts';
import type { Judge, Verdict } from './judge.ts';
import { createMapping, type MappingRules } from './mapping.ts';
import { type Refusal, readPart, type Values } from './reader.ts';
import type { RawRow } from './records.ts';
import type { RefusedRow } from './refused-rows.ts';
import { ImportError } from './texts.ts';
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
  sent?: Sent[];
  /** Of what is refused, where one is to blame. */
  field?: string;
}

/** Where the columns of a part go, for people. */
export interface Routing {
  file: string;
  columns: { column: string; field: string; reading: string }[] | undefined;
}

export interface Reading {
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
    const { name: file, columns, rows, read } = await readPart(part, options.layout, options.delimiter);
    const { mapping, routes } = createMapping(withVendor(options, columns), columns, file);
    onRouting?.({ file, columns: routes });
    const mapRow = (row: RawRow): MappedRow => {
      const sent = ofOneRow(() => {
        const said = read(row);
        const mapped = 'refused' in said ? said : mapping(said.values);
        return 'refused' in mapped ? mapped : sentOf(mapped.object, options);
      });
      return { ...row, file, ...sent };
    };
    for await (const batch of rows) {
      const left = batch.slice(Math.max(0, done - passed));
      passed += batch.length;
      if (left.length > 0) yield left.map(mapRow);
    }
  }
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
export interface JudgedRows {
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

export function refusedRow(
  { file, number, text }: MappedRow,
  { refused: reason, field = null }: { refused: string; field?: string | null },
): RefusedRow {
  return { file, row: number, field, reason, text };
}
