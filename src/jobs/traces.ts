import { type Identifier, identifierText } from '../profile/identifier.ts';
import { isUuid } from '../profile/values.ts';
import { type AcceptedObject, type Envelope, keysOf, requestIndexesOf, userIdentifiers } from './envelope.ts';

/**
 * Codes of the request arrays that objects come from, as stored in the ledger. They are permanent.
 * `service_ids` has another name on the wire, see SERVICE_ID_FIELD.
 */
export const inputArrays = {
  attributes: 1,
  events: 2,
  purchases: 3,
  user_aliases: 4,
  alias_updates: 5,
  aliases_to_identify: 6,
  emails_to_identify: 7,
  phone_numbers_to_identify: 8,
  merge_updates: 9,
  external_ids: 10,
  service_ids: 11,
  email_addresses: 12,
  phone_numbers: 13,
  external_id_renames: 14,
  subscription_groups: 15,
  email: 16,
  emails: 17,
  phone: 18,
  phones: 19,
  external_id: 20,
} as const;
export type InputArray = keyof typeof inputArrays;

/**
 * Returns the array that held the object, as errors of the same request name it. Undefined for an unknown
 * kind.
 */
export function inputArrayOf(object: AcceptedObject): InputArray | undefined {
  switch (object.kind) {
    case 'attributes':
    case 'events':
    case 'purchases':
      return object.kind;
    case 'alias_new':
      return 'user_aliases';
    case 'alias_update':
      return 'alias_updates';
    case 'identify':
      return identifies(object.user?.identifier);
    case 'merge':
      return 'merge_updates';
    case 'delete':
      return deletes(object.user?.identifier);
    case 'external_id_rename':
      return 'external_id_renames';
    case 'external_id_remove':
      return 'external_ids';
    case 'group_state':
      return object.input_array ?? 'subscription_groups';
    case 'email_change':
      return 'email';
    default:
      return undefined;
  }
}

function identifies(identifier: Identifier | undefined): InputArray {
  if (identifier && 'email' in identifier) return 'emails_to_identify';
  return identifier && 'phone' in identifier ? 'phone_numbers_to_identify' : 'aliases_to_identify';
}

function deletes(identifier: Identifier | undefined): InputArray {
  if (!identifier || 'external_id' in identifier) return 'external_ids';
  if ('user_alias' in identifier) return 'user_aliases';
  if ('service_id' in identifier) return 'service_ids';
  return 'email' in identifier ? 'email_addresses' : 'phone_numbers';
}

/** The objects of one request that one envelope carries. */
export interface Trace {
  objects: { input_array: InputArray; index: number }[];
  /** Number of objects of the whole request. The remaining ones are in other envelopes. */
  total: number;
  /** API key that sent the request. Absent if it had no key, or if an earlier release wrote the trace. */
  key_id?: string;
}

/**
 * Codes that encode the API key of a request. They are written as runs of unknown arrays, which earlier
 * releases ignore. A key is its first 12 bytes as two numbers, followed by the other 4. A request without
 * these codes has the key of the previous request.
 */
const KEY_BEGINS = 101;
const KEY_ENDS = 102;
const NO_KEY = 103;

/**
 * Code of a checksum of an identifier in the request, written as such a run too. The two numbers of the run have
 * 27 and 7 bits; the bit above the 27 gives the first number four bytes, so that a checksum has 6 bytes.
 */
const USER = 104;
const [HIGH_BITS, LOW_BITS, FOUR_BYTES] = [27, 7, 2 ** 27];
const CHECKSUM_BYTES = 6;

/** Number of checksums that are remembered, so that they are not written twice for a request. */
const RECENT = 256;

const ID = 16;
const arrayNames = new Map<number, InputArray>(
  Object.entries(inputArrays).map(([name, code]) => [code, name as InputArray]),
);

/** Buffer that all calls reuse and that grows as needed. */
let scratch = Buffer.allocUnsafe(65_536);
/** Number of bytes that the current call has written. */
let end = 0;

/**
 * Encodes the requests of an envelope and the positions of their objects compactly: 22 bytes for a request of
 * one object or one array. Traces are written with every envelope, and read when a user looks up a request.
 *
 * The encoding has, for each request: its id and its workspace's id, 16 bytes each (the workspace is omitted
 * if it equals that of the previous request); the number of objects of the whole request; the API key in 21
 * or 22 bytes, if the previous request has another one; a checksum of 6 bytes for each identifier of a
 * user; and runs of consecutive objects of one array. A number below 128 is one byte.
 *
 * @returns undefined for a replay, a fence mark, or anything that is not a valid envelope
 */
export function encodeTraces(envelope: Envelope): Buffer | undefined {
  if (!Array.isArray(envelope?.objects) || !Array.isArray(envelope.requests) || envelope.replay)
    return undefined;
  const { objects, requests } = envelope;
  const requestIndexes = requestIndexesOf(envelope);
  const keys = keysOf(requests);
  // Three ids, numbers of at most 5 bytes each, and the checksums of two identifiers.
  const maxBytes = objects.length * (3 * ID + 40 + 2 * CHECKSUM_BYTES);
  if (scratch.length < maxBytes) scratch = Buffer.allocUnsafe(maxBytes);
  end = 0;
  let workspace: string | undefined;
  let key: string | undefined;
  for (let from = 0; from < objects.length; ) {
    const requestIndex = requestIndexes[from];
    let to = from + 1;
    while (to < objects.length && requestIndexes[to] === requestIndex) to++;
    const request = requestIndex === undefined ? undefined : requests[requestIndex];
    const start = from;
    from = to;
    if (!isUuid(request?.request_id)) continue;
    const isSame = request.workspace_id === workspace;
    if (!isSame && !isUuid(request.workspace_id)) continue;
    writeNumber(isSame ? 1 : 0);
    writeId(request.request_id);
    if (!isSame) writeId(request.workspace_id);
    workspace = request.workspace_id;
    writeNumber(request.objects ?? to - start);
    const sender = keys[requestIndex as number];
    if (sender !== key) writeKey(sender);
    key = sender;
    writeUsers(objects, { from: start, to, seed: seedOf(request.workspace_id) });
    writeRuns(objects, start, to);
  }
  return end === 0 ? undefined : Buffer.from(scratch.subarray(0, end));
}

/** Checksums that were written last, by their last bits, with the number of the request. */
const recent = {
  high: new Uint32Array(RECENT),
  low: new Uint8Array(RECENT),
  request: new Uint32Array(RECENT),
};
let requestNumber = 0;

/** Writes the checksums of the identifiers of a request's objects. Most repeated ones are written once. */
function writeUsers(
  objects: AcceptedObject[],
  { from, to, seed }: { from: number; to: number; seed: number },
): void {
  requestNumber = (requestNumber + 1) >>> 0;
  let last: string | undefined;
  for (let index = from; index < to; index++)
    for (const identifier of userIdentifiers(objects[index]!)) {
      const text = identifierText(identifier);
      if (text === last) continue;
      last = text;
      computeChecksum(text, seed);
      const slot = high % RECENT;
      if (recent.request[slot] === requestNumber && recent.high[slot] === high && recent.low[slot] === low)
        continue;
      recent.request[slot] = requestNumber;
      recent.high[slot] = high;
      recent.low[slot] = low;
      writeRun(USER, high, low);
    }
}

/** The two numbers of the last computed checksum. */
let high = 0;
let low = 0;

/** Computes the checksum of an encoded identifier: 34 bits of a hash with two states of 32 bits each. */
function computeChecksum(text: string, seed: number): void {
  let one = seed ^ 0x9e3779b9;
  let other = seed ^ 0x7f4a7c15;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    one = Math.imul(one ^ unit, 0x85ebca6b);
    other = Math.imul(other ^ unit, 0xc2b2ae35);
  }
  one = mixed(one ^ (other >>> 15));
  other = mixed(other ^ (one >>> 13));
  high = FOUR_BYTES + (one >>> (32 - HIGH_BITS));
  low = other >>> (32 - LOW_BITS);
}

/** Spreads each bit of a state over all bits. */
function mixed(state: number): number {
  const spread = Math.imul(state ^ (state >>> 16), 0x2c1b3c6d);
  return (spread ^ (spread >>> 15)) >>> 0;
}

/** Returns a number of a workspace, so that one identifier has different checksums in different workspaces. */
const seedOf = (workspaceId: string): number => Number.parseInt(workspaceId.slice(-8), 16);

/** Writes runs (code of the array, first index, count) and a terminating zero. */
function writeRuns(objects: AcceptedObject[], from: number, to: number): void {
  let code = 0;
  let first = 0;
  let count = 0;
  for (let index = from; index < to; index++) {
    // An object of a malformed envelope can be null.
    const object = objects[index] ?? undefined;
    const name = object && inputArrayOf(object);
    if (object === undefined || name === undefined || !Number.isSafeInteger(object.index)) continue;
    if (inputArrays[name] === code && object.index === first + count) {
      count++;
      continue;
    }
    if (count > 0) writeRun(code, first, count);
    code = inputArrays[name];
    first = object.index;
    count = 1;
  }
  if (count > 0) writeRun(code, first, count);
  writeNumber(0);
}

function writeRun(code: number, first: number, count: number): void {
  writeNumber(code);
  writeNumber(first);
  writeNumber(count);
}

function writeKey(key: string | undefined): void {
  if (!isUuid(key)) {
    writeRun(NO_KEY, 0, 0);
    return;
  }
  const bytes = idBytes(key);
  writeRun(KEY_BEGINS, bytes.readUIntBE(0, 6), bytes.readUIntBE(6, 6));
  writeRun(KEY_ENDS, bytes.readUInt32BE(12), 0);
}

/** Formats the 16 bytes of an id as a UUID string. */
function idOf(bytes: Buffer): string {
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

function writeId(id: string): void {
  scratch.write(id.replaceAll('-', ''), end, ID, 'hex');
  end += ID;
}

/** Writes a number in groups of seven bits, lowest first. The eighth bit is set if more bytes follow. */
function writeNumber(value: number): void {
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) scratch[end++] = (rest % 128) | 128;
  scratch[end++] = rest;
}

/** Returns the bytes of an identifier of a workspace as `encodeTraces` writes them. Another identifier has the same with a probability of 1 in 2^34. */
export function userBytes(workspaceId: string, identifier: Identifier): Buffer {
  end = 0;
  computeChecksum(identifierText(identifier), seedOf(workspaceId));
  writeRun(USER, high, low);
  return Buffer.from(scratch.subarray(0, end));
}

/** Returns the bytes of an id as `encodeTraces` writes them. */
export function idBytes(id: string): Buffer {
  return Buffer.from(id.replaceAll('-', ''), 'hex');
}

/** A request in encoded traces. Its buffers are valid until the next request is read. */
interface EncodedTrace {
  request: Buffer;
  workspace: Buffer | undefined;
  total: number;
  runs: { array: InputArray; first: number; count: number }[];
  key: Buffer | undefined;
  /** Checksums of the identifiers, as hex digits of `userBytes`. */
  users: string[];
}

/** Reads the requests of encoded traces, in order. */
function* decodeTraces(bytes: Buffer): Generator<EncodedTrace> {
  let at = 0;
  const readNumber = () => {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = bytes[at++] ?? 0;
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  const readId = () => {
    at += ID;
    return bytes.subarray(at - ID, at);
  };
  let workspace: Buffer | undefined;
  const key = Buffer.alloc(ID);
  let hasKey = false;
  while (at < bytes.length) {
    const isSame = readNumber() === 1;
    const request = readId();
    workspace = isSame ? workspace : readId();
    const total = readNumber();
    const runs: EncodedTrace['runs'] = [];
    const users: string[] = [];
    for (let code = readNumber(); code !== 0; code = readNumber()) {
      const [first, count] = [readNumber(), readNumber()];
      if (code === KEY_BEGINS) {
        key.writeUIntBE(first, 0, 6);
        key.writeUIntBE(count, 6, 6);
        hasKey = true;
      } else if (code === KEY_ENDS) key.writeUInt32BE(first, 12);
      else if (code === NO_KEY) hasKey = false;
      else if (code === USER) users.push(bytes.toString('hex', at - CHECKSUM_BYTES, at));
      const array = arrayNames.get(code);
      if (array !== undefined) runs.push({ array, first, count });
    }
    yield { request, workspace, total, runs, key: hasKey ? key : undefined, users };
  }
}

/** Returns the trace of a request of a workspace from encoded traces. Undefined if it is not in there. */
export function findTrace(bytes: Buffer, requestId: string, workspaceId: string): Trace | undefined {
  const [wantedRequest, wantedWorkspace] = [idBytes(requestId), idBytes(workspaceId)];
  let trace: Trace | undefined;
  for (const { request, workspace, total, runs, key } of decodeTraces(bytes)) {
    if (!request.equals(wantedRequest) || !workspace?.equals(wantedWorkspace)) continue;
    trace ??= { objects: [], total };
    for (const { array, first, count } of runs)
      for (let index = first; index < first + count; index++)
        trace.objects.push({ input_array: array, index });
    if (key) trace.key_id ??= idOf(key);
  }
  return trace;
}

/** A request in a list. */
interface ListedTrace {
  requestId: string;
  /** Number of objects of the whole request. */
  total: number;
  /** Request arrays that its objects in this envelope came from. */
  arrays: InputArray[];
  keyId: string | undefined;
  /** Checksums of the identifiers of its users, as hex digits of `userBytes`. */
  users: string[];
}

/** Returns the requests of a workspace in encoded traces. */
export function listTraces(bytes: Buffer, workspaceId: string): ListedTrace[] {
  const wanted = idBytes(workspaceId);
  const listed: ListedTrace[] = [];
  for (const { request, workspace, total, runs, key, users } of decodeTraces(bytes))
    if (workspace?.equals(wanted))
      listed.push({
        ...{ requestId: idOf(request), total, arrays: runs.map(({ array }) => array) },
        keyId: key && idOf(key),
        users,
      });
  return listed;
}

/** Returns the trace of a request of a workspace directly from its envelope. */
export function traceOf(envelope: Envelope, requestId: string, workspaceId: string): Trace | undefined {
  const bytes = encodeTraces(envelope);
  return bytes && findTrace(bytes, requestId, workspaceId);
}
