import { shortened } from '../platform/format.ts';

/** A receiver outside, opened for a while. */
export interface Destination {
  /** Most messages, and bytes of their envelopes, that are delivered at once. */
  most: { messages: number; bytes: number };
  /**
   * Delivers in their order; resolves when the receiver has them.
   * @throws {DeliveryError}
   */
  deliver(batch: Batch, signal: AbortSignal): Promise<void>;
  close(): Promise<void> | void;
}

/** A place outside for files, opened for a while. */
export interface FileDestination {
  /**
   * Writes what comes as a file, here and for the time being; its memory is bounded whatever comes.
   * @throws {DeliveryError}; what `pieces` fails with, as it is; the reason of the signal
   */
  write(pieces: AsyncIterable<Piece>, signal: AbortSignal): Promise<WrittenFile>;
  /** Whether files can be put there: puts one. @throws {DeliveryError} */
  check(signal: AbortSignal): Promise<void>;
  close(): Promise<void> | void;
}

/** Messages in their order, and their envelopes as JSON. */
export type Piece = Pick<Batch, 'messages' | 'envelopes'>;

interface WrittenFile {
  /**
   * Puts the file where it belongs, and over one of the same name: it is there once all of it is on disk, and no part of
   * it before.
   * @throws {DeliveryError}; the reason of the signal
   */
  put(range: FileRange, signal: AbortSignal): Promise<void>;
  /** Removes what was written here. */
  discard(): Promise<void>;
}

/** What a file is named by. */
export interface FileRange {
  workspaceId: string;
  hour: Date;
  /** It has what is behind this place of the log, up to the other. */
  from: LogPlace;
  to: LogPlace;
}

/** Behind all rows up to an id, and so many entries of the row whose id is the next. */
export interface LogPlace {
  position: string;
  place: number;
}

export interface Batch {
  /** The same for the same messages: it begins with the same one. */
  id: string;
  messages: Message[];
  /** Their envelopes, as JSON. */
  envelopes: string[];
}

/** Characters of a message. */
const MOST_MESSAGE = 1000;

/** Why something was not delivered: for people, without secrets. */
export class DeliveryError extends Error {
  override name = 'DeliveryError';
  /** The receiver wants no more: it is asked again when somebody resumes the destination. */
  readonly isGone: boolean;

  constructor(message: string, { isGone = false, ...options }: ErrorOptions & { isGone?: boolean } = {}) {
    super(shortened(message, MOST_MESSAGE), options);
    this.isGone = isGone;
  }
}

/** What of a message has its own member in the envelope. */
export const messageTypes = {
  e: 'event',
  p: 'purchase',
  a: 'attributes',
  s: 'subscription',
  i: 'identity',
} as const;
type MessageType = (typeof messageTypes)[keyof typeof messageTypes];

/** Something that took effect, on its way to a destination. */
export interface Message {
  /** A UUID: the same each time it is delivered. */
  id: string;
  /** The place in the log, as text of fixed length: messages of a workspace sort by it in the order in which they took effect. */
  position: string;
  type: MessageType;
  /** ISO 8601: when it took effect. */
  time: string;
  workspaceId: string;
  /** What is about one user has one key, and keeps its order: the service id, or the address. */
  key: string;
  user: { service_id: string; external_id: string | null } | null;
  /** JSON. */
  data: string;
}

/** Digits of the largest row of the log, and of the largest place within a row. */
const ROW_DIGITS = 19;
const PLACE_DIGITS = 7;

/** The `position` of an entry of the log. */
export const positionOf = (row: string, place: number): string =>
  `${row.padStart(ROW_DIGITS, '0')}.${String(place).padStart(PLACE_DIGITS, '0')}`;

/** The envelope as JSON: `{id, type, time, workspace_id, user, data, position}`. `field` is the wire name of the service id. */
export function envelopeOf(message: Message, field: string): string {
  const { id, type, time, workspaceId, user, data, position } = message;
  // Ids, types, times and positions have nothing that is escaped in JSON.
  const who = user
    ? `{"${field}":"${user.service_id}","external_id":${JSON.stringify(user.external_id)}}`
    : 'null';
  return `{"id":"${id}","type":"${type}","time":"${time}","workspace_id":"${workspaceId}","user":${who},"data":${data},"position":"${position}"}`;
}
