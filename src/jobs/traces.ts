import type { Envelope } from './envelope.ts';
import { type InputArray, inputArrayOf, inputArrays } from './input-array.ts';

/** The objects of one request that one envelope carries. */
export interface Trace {
  objects: { input_array: InputArray; index: number }[];
  /** Objects that the whole request had: the others are in other envelopes. */
  total: number;
}

const ID = 16;
const arrayNames = new Map<number, InputArray>(
  Object.entries(inputArrays).map(([name, code]) => [code, name as InputArray]),
);

/** Reused by every call, and grown where need be. */
let scratch = Buffer.allocUnsafe(65_536);

/**
 * Which requests an envelope carries, with the places of their objects, in few bytes (22 for a request of one object,
 * or of one array): they are written with every envelope, and read when somebody asks.
 *
 * For each request: its id and its workspace's, 16 bytes each, the workspace's left out where it is that of the request
 * before; the objects that the whole request had; then runs of objects of one array at places that follow each other.
 * A number below 128 is one byte.
 *
 * @returns undefined when there is nothing to say: a replay, a mark, or what is no envelope of ours
 */
export function encodeTraces(envelope: Envelope): Buffer | undefined {
  if (!Array.isArray(envelope?.objects) || !Array.isArray(envelope.requests) || envelope.replay)
    return undefined;
  const { objects, requests } = envelope;
  // Two ids, and numbers of at most 5 bytes.
  const most = objects.length * (2 * ID + 30);
  if (scratch.length < most) scratch = Buffer.allocUnsafe(most);
  let end = 0;
  let workspace: string | undefined;
  for (let from = 0; from < objects.length; ) {
    const place = objects[from]?.request;
    let to = from + 1;
    while (to < objects.length && objects[to]?.request === place) to++;
    const request = requests[place as number];
    const start = from;
    from = to;
    if (!isUuid(request?.request_id)) continue;
    const isSame = request.workspace_id === workspace;
    if (!isSame && !isUuid(request.workspace_id)) continue;
    end = writeNumber(end, isSame ? 1 : 0);
    end = writeId(end, request.request_id);
    if (!isSame) end = writeId(end, request.workspace_id);
    workspace = request.workspace_id;
    end = writeNumber(end, request.objects ?? to - start);
    end = writeRuns(end, envelope, start, to);
  }
  return end === 0 ? undefined : Buffer.from(scratch.subarray(0, end));
}

/** Runs of an array's code, its first place and their number; a zero ends them. */
function writeRuns(end: number, { objects }: Envelope, from: number, to: number): number {
  let code = 0;
  let first = 0;
  let count = 0;
  let at = end;
  for (let place = from; place < to; place++) {
    const object = objects[place]!;
    const name = inputArrayOf(object);
    if (name === undefined || !Number.isSafeInteger(object.index)) continue;
    if (inputArrays[name] === code && object.index === first + count) {
      count++;
      continue;
    }
    if (count > 0) at = writeRun(at, code, first, count);
    code = inputArrays[name];
    first = object.index;
    count = 1;
  }
  if (count > 0) at = writeRun(at, code, first, count);
  return writeNumber(at, 0);
}

function writeRun(end: number, code: number, first: number, count: number): number {
  return writeNumber(writeNumber(writeNumber(end, code), first), count);
}

function writeId(end: number, id: string): number {
  scratch.write(id.replaceAll('-', ''), end, ID, 'hex');
  return end + ID;
}

/** Seven bits a byte, the lowest first; the eighth says that more follow. */
function writeNumber(end: number, value: number): number {
  let rest = value;
  let at = end;
  for (; rest > 127; rest = Math.floor(rest / 128)) scratch[at++] = (rest % 128) | 128;
  scratch[at++] = rest;
  return at;
}

function isUuid(id: unknown): id is string {
  return typeof id === 'string' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id);
}

/** An id as it stands in what `encodeTraces` makes. */
export function idBytes(id: string): Buffer {
  return Buffer.from(id.replaceAll('-', ''), 'hex');
}

/** What the bytes say of one request of one workspace; undefined: nothing. */
export function findTrace(bytes: Buffer, requestId: string, workspaceId: string): Trace | undefined {
  const [wantedRequest, wantedWorkspace] = [idBytes(requestId), idBytes(workspaceId)];
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
  let trace: Trace | undefined;
  while (at < bytes.length) {
    const isSame = readNumber() === 1;
    const request = readId();
    workspace = isSame ? workspace : readId();
    const total = readNumber();
    const isWanted = request.equals(wantedRequest) && workspace?.equals(wantedWorkspace);
    if (isWanted) trace ??= { objects: [], total };
    for (let code = readNumber(); code !== 0; code = readNumber()) {
      const [first, count] = [readNumber(), readNumber()];
      const input_array = arrayNames.get(code);
      if (!isWanted || input_array === undefined) continue;
      for (let index = first; index < first + count; index++) trace!.objects.push({ input_array, index });
    }
  }
  return trace;
}

/** What an envelope itself says of one request of one workspace. */
export function traceOf(envelope: Envelope, requestId: string, workspaceId: string): Trace | undefined {
  const bytes = encodeTraces(envelope);
  return bytes && findTrace(bytes, requestId, workspaceId);
}
