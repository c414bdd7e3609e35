import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { within } from '../platform/lifecycle.ts';
import type { Reach } from '../platform/reach.ts';
import { type Credentials, type PostgresDefinition, SourceError } from './source.ts';

/** How long a server may take, in milliseconds. */
export interface Patience {
  connect: number;
  /** Of statements that read no rows. */
  answer: number;
  /** Of the reading of one run: what the server has had to be waited for in all. */
  read: number;
  /** More of that for each row that it has given. */
  perRow: number;
  /** To say good-bye. */
  end: number;
}

/**
 * Bytes of a message, by its kind. The longest row that is asked for has 4.5 MB: a payload, and five identifiers that
 * are cut. A few megabytes of an error's fields would keep the parser busy for seconds.
 */
const MOST_BYTES: Readonly<Record<string, number>> = { D: 16_777_216, T: 4_194_304 };
const MOST_OTHER_BYTES = 262_144;
/** Of what comes between two rows, the second included. */
const MOST_BETWEEN_BYTES = 25_165_824;
/** Milliseconds of reading after which the event loop has a turn: many chunks may come in one. */
const MOST_TURN_MS = 50;

/** Of the rows that are given at a time. */
const BATCH_BYTES = 8_388_608;

export type Row = (string | null)[];

/** The parts of pg's connection that are used; it has no types for them. */
interface Connection {
  stream: Duplex;
  attachListeners(stream: Duplex): void;
  on(event: string, listener: () => void): void;
}

export type ClientOptions = { reach: Reach; patience: Patience };

/**
 * A client of a server that is somebody else's. What is no word of the protocol, or never ends, ends the connection
 * with a SourceError; nothing of it reaches the process.
 */
export function createClient(
  definition: PostgresDefinition,
  credentials: Extract<Credentials, { user: string }>,
  { reach, patience }: ClientOptions,
): pg.Client {
  const { host, port, database, tls } = definition;
  const client = new pg.Client({
    host,
    port,
    database,
    ...credentials,
    ssl: tls === 'off' ? false : { rejectUnauthorized: tls === 'verified' },
    connectionTimeoutMillis: patience.connect,
    keepAlive: true,
    application_name: 'penstock',
    stream: () => new ReachingSocket(reach),
  });
  guard(client);
  return client;
}

/** Looks at what the server sends before pg does, and catches what pg throws at it. */
function guard(client: pg.Client): void {
  const connection = connectionOf(client);
  let between = 0;
  const read = () => {
    between = 0;
  };
  connection.on('dataRow', read);
  connection.on('readyForQuery', read);
  const attach = connection.attachListeners.bind(connection);
  connection.attachListeners = (stream) => {
    attach(stream);
    const [parse] = stream.listeners('data').slice(-1) as [(chunk: Buffer) => void];
    stream.removeListener('data', parse);
    const requireShort = createFraming();
    let spent = 0;
    let resting = false;
    const rest = () => {
      resting = false;
      spent = 0;
      if (!held.has(stream)) stream.resume();
    };
    stream.on('data', (chunk: Buffer) => {
      between += chunk.length;
      const started = performance.now();
      try {
        requireShort(chunk);
        parse(chunk);
        if (between > MOST_BETWEEN_BYTES)
          throw new SourceError('failed', `the server sent ${between} bytes without a row or an end`);
      } catch (error) {
        const said = `the server does not speak the protocol of Postgres (${(error as Error).message})`;
        stream.destroy(
          error instanceof SourceError ? error : new SourceError('failed', said, { cause: error }),
        );
        return;
      }
      spent += performance.now() - started;
      if (spent < MOST_TURN_MS || resting) return;
      resting = true;
      stream.pause();
      setImmediate(rest);
    });
  };
}

/** Streams that are not listened to until their rows have been taken. */
const held = new WeakSet<Duplex>();

/** Reads the heads of messages: one byte for the kind, four for the length. */
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
      if (length > (MOST_BYTES[kind] ?? MOST_OTHER_BYTES))
        throw new SourceError(
          'failed',
          `the server sent a message of ${length} bytes (${JSON.stringify(kind)})`,
        );
      left = length - 4;
    }
  };
}

function connectionOf(client: pg.Client): Connection {
  return (client as unknown as { connection: Connection }).connection;
}

/**
 * A socket that connects to no refused address. `connect` never throws: `pg` listens for errors of the socket only after
 * it has called `connect`, and an error that is thrown there leaves a socket without a listener behind.
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

/** Says good-bye, and hangs up on a server that does not answer. */
export async function endClient(client: pg.Client, { end }: Patience): Promise<void> {
  await within(end, client.end()).catch(() => {});
  connectionOf(client).stream.destroy();
}

export interface Asked {
  /** Most rows that the answer may have. */
  rows: number;
  /** What is left of the patience, in milliseconds. */
  milliseconds: number;
}

export interface Answered {
  fields: pg.FieldDef[];
  /** Milliseconds that the server has been waited for. */
  waited: number;
}

const asTexts: pg.CustomTypesConfig = { getTypeParser: () => (value: string) => value };

/**
 * Rows of a statement in batches as they come; the server is not listened to while nobody takes them.
 * @throws {SourceError} when the server answers too slowly, or with more than was asked for; its own errors as they are
 */
export async function* ask(client: pg.Client, text: string, asked: Asked): AsyncGenerator<Row[], Answered> {
  const { stream } = connectionOf(client);
  const query = new pg.Query({ text, rowMode: 'array', types: asTexts } as pg.QueryConfig);
  let rows: Row[] = [];
  let [count, bytes, waited] = [0, 0, 0];
  let end: { fields: pg.FieldDef[] } | { error: unknown } | undefined;
  let wake = () => {};

  query.on('row', (row: unknown) => {
    count += 1;
    if (count > asked.rows) {
      stream.destroy(new SourceError('failed', `the server sent more rows than the requested ${asked.rows}`));
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
        await within(Math.max(1, asked.milliseconds - waited), woken).catch(() => {
          throw new SourceError(
            'failed',
            `the server did not answer in time (${Math.round(asked.milliseconds)} ms)`,
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
    // Nobody reads the rest of it.
    if (!end) stream.destroy();
  }
}
