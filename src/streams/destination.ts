import { shortened } from '../platform/format.ts';

/** An open connection to a receiver. */
export interface Destination {
  /** Maximum messages, and maximum bytes of their envelopes, in one delivery. */
  limits: { messages: number; bytes: number };
  /**
   * Delivers messages in order; resolves when the receiver has acknowledged them.
   * @throws {DeliveryError}
   */
  deliver(batch: Batch, signal: AbortSignal): Promise<void>;
  close(): Promise<void> | void;
}

/** An open location for files. */
export interface FileDestination {
  /**
   * Writes pieces to a local temporary file. Memory is limited, whatever the number of pieces.
   * @throws {DeliveryError}, the unchanged error of `pieces`, or the reason of the signal
   */
  write(pieces: AsyncIterable<Piece>, signal: AbortSignal): Promise<WrittenFile>;
  /** Checks that files can be written by writing one. @throws {DeliveryError} */
  check(signal: AbortSignal): Promise<void>;
  close(): Promise<void> | void;
}

/** Messages in order, and their envelopes as JSON. */
export type Piece = Pick<Batch, 'messages' | 'envelopes'>;

interface WrittenFile {
  /**
   * Puts the file at its final location and replaces a file of the same name. The file appears there only
   * when it is completely on disk.
   * @throws {DeliveryError}, or the reason of the signal
   */
  put(range: FileRange, signal: AbortSignal): Promise<void>;
  /** Removes the local copy. */
  discard(): Promise<void>;
}

/** The values that form the name of a file. */
export interface FileRange {
  workspaceId: string;
  hour: Date;
  /** The file contains the entries after the place `from`, up to and including `to`. */
  from: LogPosition;
  to: LogPosition;
}

/** A place in the log: after all rows up to the id `position`, and after `place` entries of the next row. */
export interface LogPosition {
  position: string;
  place: number;
}

export interface Batch {
  /** Id of the batch. A redelivery that begins with the same message has the same id. */
  id: string;
  messages: Message[];
  /** Envelopes of the messages as JSON. */
  envelopes: string[];
}

/** Maximum characters of an error message. */
const MAX_ERROR_CHARACTERS = 1000;

/** Thrown if a delivery failed. The message is for users and contains no secrets. */
export class DeliveryError extends Error {
  override name = 'DeliveryError';
  /**
   * Whether the receiver refuses all further messages. Delivery then stops until the destination is resumed.
   */
  readonly isGone: boolean;

  constructor(message: string, { isGone = false, ...options }: ErrorOptions & { isGone?: boolean } = {}) {
    super(shortened(message, MAX_ERROR_CHARACTERS), options);
    this.isGone = isGone;
  }
}

/** Names of message types in the envelope, by their letter in the log. */
export const messageTypes = {
  e: 'event',
  p: 'purchase',
  a: 'attributes',
  s: 'subscription',
  i: 'identity',
} as const;
type MessageType = (typeof messageTypes)[keyof typeof messageTypes];

/** A change that took effect and is to be delivered to a destination. */
export interface Message {
  /** UUID of the message, which is the same for each redelivery. */
  id: string;
  /**
   * Place in the log as text of fixed length. The messages of a workspace sort by it in the order in which
   * they took effect.
   */
  position: string;
  type: MessageType;
  /** Time at which the change took effect, in ISO 8601. */
  time: string;
  workspaceId: string;
  /**
   * Key of the user (service id) or address that the message concerns. Messages with one key keep their
   * order.
   */
  key: string;
  user: { service_id: string; external_id: string | null } | null;
  /** Content as JSON. */
  data: string;
}

/** Digits of the largest row id of the log, and of the largest place in a row. */
const ROW_DIGITS = 19;
const PLACE_DIGITS = 7;

/** Returns the `position` of an entry of the log. */
export const positionOf = (row: string, index: number): string =>
  `${row.padStart(ROW_DIGITS, '0')}.${String(index).padStart(PLACE_DIGITS, '0')}`;

/**
 * Returns the envelope as JSON: `{id, type, time, workspace_id, user, data, position}`. `field` is the API
 * name of the service id.
 */
export function envelopeOf(message: Message, field: string): string {
  const { id, type, time, workspaceId, user, data, position } = message;
  // Ids, types, times and positions have no characters that JSON escapes.
  const who = user
    ? `{"${field}":"${user.service_id}","external_id":${JSON.stringify(user.external_id)}}`
    : 'null';
  return `{"id":"${id}","type":"${type}","time":"${time}","workspace_id":"${workspaceId}","user":${who},"data":${data},"position":"${position}"}`;
}
