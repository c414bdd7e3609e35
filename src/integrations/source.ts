import type { Reach } from '../platform/reach.ts';

/**
 * A place that rows are synced from. To support another warehouse is to write one of these and to name it in
 * `open-source.ts`.
 */
export interface Source {
  /**
   * Name and type of the columns, as the source spells them.
   * @throws {SourceError} `config` when the table, view or path is not there or may not be read
   */
  describe(): Promise<SourceColumn[]>;
  /**
   * The rows with an UPDATED_AT of `since` or later, or all of them, in ascending order of UPDATED_AT, in batches.
   * Memory stays bounded whatever their number. A row the UPDATED_AT of which is no time comes with the others, in
   * no particular place.
   * @param since ISO 8601 in UTC to the microsecond, as in `updatedAt`
   * @throws {SourceError}
   */
  rowsSince(since: string | undefined, options: ReadOptions): AsyncIterable<SourceRow[]>;
  close(): Promise<void>;
}

/** How any source is opened. */
export interface SourceOptions {
  /** Wire name of the service's own id, and of its column. */
  serviceIdField: string;
  /** Bytes of disk that the files of one run may take, unpacked. */
  scratchBytes: number;
  /** Addresses that may be connected to. */
  reach: Reach;
  /** Gives up the opening, and with it `describe`. */
  signal?: AbortSignal;
}

export interface ReadOptions {
  /** Most rows in one batch. */
  batch: number;
  /** Ends the reading with its reason, also within a statement of the source. */
  signal: AbortSignal;
}

export interface SourceColumn {
  name: string;
  type: string;
}

/** One row: the columns that a sync knows, and nothing of the others. Null and absence are the same. */
export interface SourceRow {
  /** Always `YYYY-MM-DDTHH:MM:SS.ffffffZ`, so that texts compare as times do; absent when the value is no time. */
  updatedAt?: string;
  /**
   * What stood there, when it is no time: empty for null and absence. Of a line of a file that could not be read at all,
   * both parts of `broken`.
   */
  unreadable?: string;
  /** A line of a file that could not be read at all: the file, the line and the rule that it breaks; and what stands in it. */
  broken?: { reason: string; text: string };
  identifiers: Partial<Record<IdentifierColumn, string>>;
  /** JSON text as it stood there, or the value of a column of a structured type as JSON text. */
  payload?: string;
}

/** Lower-case names; columns are found whatever their case. The service's own id goes by its wire name. */
export type IdentifierColumn =
  | 'external_id'
  | 'alias_name'
  | 'alias_label'
  | 'service_id'
  | 'email'
  | 'phone';

/** Characters of a message: the words of somebody else's server may have any length. */
const MOST_MESSAGE = 2000;

/** Why a source gives no rows. */
export class SourceError extends Error {
  override name = 'SourceError';
  readonly reason: 'config' | 'failed';

  /**
   * @param reason `config`: nobody but the owner can mend it (address, password, table, column); `failed`: the
   *   source did not answer, or stopped in the middle: another try may do
   * @param message for the owner: what is wrong and where; never a secret
   */
  constructor(reason: SourceError['reason'], message: string, options?: ErrorOptions) {
    super(message.length > MOST_MESSAGE ? `${message.slice(0, MOST_MESSAGE)}…` : message, options);
    this.reason = reason;
  }
}
