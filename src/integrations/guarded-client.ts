import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { withTimeout } from '../platform/lifecycle.ts';
import type { Reach } from '../platform/reach.ts';
import { type Credentials, type PostgresDefinition, SourceError } from './source.ts';

/** Time limits for a server, in milliseconds. */
export interface TimeLimits {
  connect: number;
  /** Limit for statements that return no rows. */
  answer: number;
  /** Limit for the total time of waiting for the server while one run reads. */
  read: number;
  /** Additional time of reading for each row that was returned. */
  perRow: number;
  /** Limit for closing the connection. */
  end: number;
}

/**
 * Maximum bytes of a message, by its type. The longest row that is requested has 4.5 MB: a payload, and five
 * truncated identifiers. An error with a few megabytes of fields would occupy the parser for seconds.
 */
const MAX_BYTES_BY_TYPE: Readonly<Record<string, number>> = { D: 16_777_216, T: 4_194_304 };
const MAX_OTHER_BYTES = 262_144;
/** Maximum bytes between two rows, including the second row. */
const MAX_BYTES_BETWEEN_ROWS = 25_165_824;
/**
 * Milliseconds of parsing after which other work of the event loop may run: a single read may contain many
 * chunks.
 */
const MAX_TURN_MS = 50;

/** Maximum bytes of the rows in a batch. */
const BATCH_BYTES = 8_388_608;

export type Row = (string | null)[];

type ClientOptions = { reach: Reach; patience: TimeLimits };

/**
 * Creates a client for an untrusted server. Data that violates the protocol or never ends closes the
 * connection with a SourceError and cannot fail the process.
 */
export function createClient(
  definition: PostgresDefinition,
  credentials: Extract<Credentials, { user: string }>,
  { reach, patience }: ClientOptions,
): pg.Client {
  const { host, port, database, tls } = definition;
  const ssl = tls === 'off' ? false : { rejectUnauthorized: tls === 'verified' };
  const connection = new GuardedConnection({
    ...{ ssl, keepAlive: true, stream: () => new ReachingSocket(reach) },
  });
  return new pg.Client({
    ...{ host, port, database, ...credentials, ssl, connection },
    connectionTimeoutMillis: patience.connect,
    application_name: 'penstock',
  } as pg.ClientConfig);
}

/** The connection of `pg` with its method that starts to parse a stream, which the types of `pg` omit. */
const ParsingConnection = pg.Connection as unknown as new (
  config: pg.ConnectionConfig,
) => pg.Connection & { attachListeners(stream: EventEmitter): void };

/** Checks the data of the server before `pg` parses it, and catches the errors that `pg` throws. */
class GuardedConnection extends ParsingConnection {
  /** Bytes since the last row or the last end of a statement. */
  #between = 0;

  constructor(config: pg.ConnectionConfig) {
    super(config);
    const read = () => {
      this.#between = 0;
    };
    this.on('dataRow', read);
    this.on('readyForQuery', read);
  }

  override attachListeners(stream: Duplex): void {
    const checked = new EventEmitter();
    super.attachListeners(checked);
    const requireShort = createFraming();
    let spent = 0;
    let resting = false;
    const rest = () => {
      resting = false;
      spent = 0;
      if (!held.has(stream)) stream.resume();
    };
    stream.on('data', (chunk: Buffer) => {
      this.#between += chunk.length;
      const started = performance.now();
      try {
        requireShort(chunk);
        checked.emit('data', chunk);
        if (this.#between > MAX_BYTES_BETWEEN_ROWS)
          throw new SourceError('failed', `the server sent ${this.#between} bytes without a row or an end`);
      } catch (error) {
        const violation = `the server does not speak the protocol of Postgres (${(error as Error).message})`;
        stream.destroy(
          error instanceof SourceError ? error : new SourceError('failed', violation, { cause: error }),
        );
        return;
      }
      spent += performance.now() - started;
      if (spent < MAX_TURN_MS || resting) return;
      resting = true;
      stream.pause();
      setImmediate(rest);
    });
  }
}

/** Streams that are paused until their rows have been consumed. */
const held = new WeakSet<Duplex>();

/** Reads the headers of messages: one byte for the type, four for the length. */
function createFraming(): (chunk: Buffer) => void {
  const head = Buffer.alloc(5);
  let [had, left] = [0, 0];
  return function requireShort(chunk) {
    for (let at = 0; at < chunk.length; ) {
      const skipped = Math.min(left, chunk.length - at);
      left -= skipped;
      at += skipped;
      if (at === chunk.length) return;
      head[had] = chunk[at]!;
      had += 1;
      at += 1;
      if (had < head.length) continue;
      had = 0;
      const [kind, length] = [String.fromCharCode(head[0]!), head.readUInt32BE(1)];
      if (length < 4) throw new Error('a message without a length');
      if (length > (MAX_BYTES_BY_TYPE[kind] ?? MAX_OTHER_BYTES))
        throw new SourceError(
          'failed',
          `the server sent a message of ${length} bytes (${JSON.stringify(kind)})`,
        );
      left = length - 4;
    }
  };
}

/**
 * A socket that connects to no refused address. `connect` never throws: `pg` listens for errors only after it
 * has called `connect`, so an error thrown there would leave a socket without a listener.
 */
class ReachingSocket extends Socket {
  readonly #reach: Reach;

  constructor(reach: Reach) {
    super();
    this.#reach = reach;
  }

  /** @param port a port number, or the path of a socket of this machine */
  override connect(...given: unknown[]): this {
    const [port, host] = given as [port: number | string, host?: string];
    try {
      this.#reach.requireAllowed(host ?? '127.0.0.1');
      return host === undefined
        ? super.connect(port as string)
        : super.connect({ port: Number(port), host, lookup: this.#reach.lookup });
    } catch (error) {
      return this.destroy(error as Error);
    }
  }
}

/** Closes the connection, and destroys it if the server does not respond in time. */
export async function endClient(client: pg.Client, { end }: TimeLimits): Promise<void> {
  await withTimeout(end, client.end()).catch(() => {});
  client.connection.stream.destroy();
}

export interface QueryLimits {
  /** Maximum rows of the response. */
  rows: number;
  /** Remaining time in milliseconds. */
  milliseconds: number;
}

export interface QueryResult {
  fields: pg.FieldDef[];
  /** Milliseconds of waiting for the server. */
  waited: number;
}

const asTexts: pg.CustomTypesConfig = { getTypeParser: () => (value: string) => value };

/**
 * Yields the rows of a statement in batches as they arrive; the connection is paused until the caller has
 * taken a batch.
 * @throws {SourceError} if the server is too slow or returns more than was requested; errors of the server
 * are thrown unchanged
 */
export async function* streamQuery(
  client: pg.Client,
  text: string,
  limits: QueryLimits,
): AsyncGenerator<Row[], QueryResult> {
  const { stream } = client.connection;
  const query = new pg.Query({ text, rowMode: 'array', types: asTexts } as pg.QueryConfig);
  let rows: Row[] = [];
  let [count, bytes, waited] = [0, 0, 0];
  let end: { fields: pg.FieldDef[] } | { error: unknown } | undefined;
  let wake = () => {};

  query.on('row', (row: unknown) => {
    count += 1;
    if (count > limits.rows) {
      stream.destroy(
        new SourceError('failed', `the server sent more rows than the requested ${limits.rows}`),
      );
      return;
    }
    rows.push(row as Row);
    bytes += (row as Row).reduce((sum, value) => sum + (value?.length ?? 0), 1);
    if (bytes < BATCH_BYTES) return;
    held.add(stream);
    stream.pause();
    wake();
  });
  query.on('end', (result) => {
    const { fields } = result as Partial<pg.QueryArrayResult>;
    end = fields
      ? { fields }
      : { error: new SourceError('failed', 'the server sent several results for one statement') };
    wake();
  });
  query.on('error', (error) => {
    end = { error };
    wake();
  });
  client.query(query);
  try {
    while (true) {
      const started = performance.now();
      if (!end && bytes < BATCH_BYTES) {
        const woken = new Promise<void>((resolve) => {
          wake = resolve;
        });
        await withTimeout(Math.max(1, limits.milliseconds - waited), woken).catch(() => {
          throw new SourceError(
            'failed',
            `the server did not answer in time (${Math.round(limits.milliseconds)} ms)`,
          );
        });
      }
      waited += performance.now() - started;
      if (rows.length > 0) yield rows;
      [rows, bytes] = [[], 0];
      if (!end) {
        held.delete(stream);
        stream.resume();
        continue;
      }
      if ('error' in end) throw end.error;
      return { fields: end.fields, waited };
    }
  } finally {
    // The rest of the response is not read.
    if (!end) stream.destroy();
  }
}
