import type { Message } from './message.ts';

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

export interface Batch {
  /** The same for the same messages: it begins with the same one. */
  id: string;
  messages: Message[];
  /** Their envelopes, as JSON. */
  envelopes: string[];
}

/** Characters of a message: the words of somebody else's server may have any length. */
const MOST_MESSAGE = 1000;

/** Why something was not delivered: for people, without secrets. */
export class DeliveryError extends Error {
  override name = 'DeliveryError';
  /** The receiver wants no more: it is asked again when somebody resumes the destination. */
  readonly isGone: boolean;

  constructor(message: string, { isGone = false, ...options }: ErrorOptions & { isGone?: boolean } = {}) {
    super(message.length > MOST_MESSAGE ? `${message.slice(0, MOST_MESSAGE)}…` : message, options);
    this.isGone = isGone;
  }
}
