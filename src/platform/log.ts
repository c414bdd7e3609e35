import { writeSync } from 'node:fs';
import { stderr, stdout } from 'node:process';
import { type DestinationStream, type LoggerOptions, pino, stdTimeFunctions } from 'pino';
import { isoTime } from './format.ts';
import { tracing } from './tracing.ts';

/** Names of members that are never logged: secrets, and values that can identify a user. */
const redacted = [
  'authorization',
  'api_key',
  'apiKey',
  'password',
  'cookie',
  'headers',
  'email',
  'phone',
  'external_id',
  'user_alias',
  'object',
  'objects',
  'body',
];

/** Bytes that are buffered before a write, and milliseconds after which the buffer is written in any case. */
const BUFFER = 8192;
const FLUSH_INTERVAL = 200;

export type Log = ReturnType<typeof createLog>;

interface LogOptions {
  /** Value of LOG_FORMAT. */
  format?: string;
  /** Id of the process in the table `processes`. */
  id?: string | undefined;
  /** File descriptor for the lines: standard output (default) or standard error. */
  to?: 1 | 2 | undefined;
}

/**
 * Creates a logger that writes one line per event, by default to standard output. Lines are JSON, or readable
 * text, which is the default for a terminal. Level `error` means that an operator must act now, `warn` that
 * the process recovered by itself, and `info` is what an operator wants to read on a quiet day.
 *
 * Web and worker buffer their lines for up to 200 ms, because a write per line is a considerable part of the
 * cost of a small request. The buffer is written when the process exits. A process that is killed loses it.
 */
export function createLog(
  name: 'web' | 'worker' | 'sync' | 'board' | 'release' | 'start' | 'test',
  level: string,
  { format = 'auto', id, to = 1 }: LogOptions = {},
) {
  const terminal = to === 1 ? stdout : stderr;
  const isReadable = format === 'readable' || (format === 'auto' && terminal.isTTY);
  // Lines for a terminal are never buffered.
  const gathers = (name === 'web' || name === 'worker') && !isReadable && to === 1;
  const destination = gathers ? new BufferedOutput() : pino.destination({ dest: to, sync: true });
  const stream: DestinationStream = isReadable
    ? { write: (line) => void destination.write(readableLine(line, hasColours(terminal))) }
    : destination;
  return createLogInto(stream, {
    level,
    base: { process: name, pid: process.pid, ...(id && { instance: id }) },
    redact: { paths: redacted, censor: '[redacted]' },
    serializers: { err: describe },
    ...(WATCHES_STORES.has(name) && { hooks: { logMethod: demoteStoreAway } }),
    // Adds trace and span ids, so that a line and its trace can be matched.
    ...(tracing && { mixin: tracing.ids }),
  });
}

/** Where `writeLine` writes the lines of a logger, and the members with which each of them begins, as JSON. */
interface PlainLines {
  stream: DestinationStream;
  base: string;
}

/** Loggers without a mixin. A mixin adds members to each line. */
const plainLines = new WeakMap<object, PlainLines>();

/** Creates a logger that writes its lines to a stream. */
export function createLogInto(stream: DestinationStream, options: LoggerOptions & { base: object }) {
  const log = pino({ timestamp: stdTimeFunctions.isoTime, ...options }, stream);
  if (!options.mixin) plainLines.set(log, { stream, base: JSON.stringify(options.base).slice(1, -1) });
  return log;
}

/** Members of a line whose values are only numbers and ids. Undefined members are omitted. */
export type LineFields = Record<string, string | number | undefined>;

/**
 * Writes the same line as `log[level](fields, message)` in 1.2 µs instead of 2.1 (Node 20, 2026-11-25). Use
 * it for lines of every request whose members need no redaction and contain no object.
 */
export function writeLine(
  log: Log,
  fields: LineFields,
  { level, message }: { level: 'info' | 'warn'; message: string },
): void {
  const plain = plainLines.get(log);
  if (!plain) {
    log[level](fields, message);
    return;
  }
  if (!log.isLevelEnabled(level)) return;
  let line = `{"level":${log.levels.values[level]},"time":"${isoTime(Date.now())}",${plain.base}`;
  for (const name in fields) {
    const value = fields[name];
    if (value !== undefined) line += `,"${name}":${JSON.stringify(value)}`;
  }
  plain.stream.write(`${line},"msg":"${message}"}\n`);
}

/** Returns whether a terminal shows colours. Node checks its capabilities and NO_COLOR. */
function hasColours(terminal: typeof stdout | typeof stderr): boolean {
  return terminal.isTTY && terminal.hasColors();
}

/**
 * Standard output with a buffer. Discards the last lines when their reader has ended, for example when `npm start` was
 * killed: sonic-boom would try to write them at exit indefinitely.
 */
class BufferedOutput implements DestinationStream {
  readonly #destination = pino.destination({
    ...{ dest: 1, sync: false, minLength: BUFFER, periodicFlush: FLUSH_INTERVAL },
  });

  #isDestroyed = false;

  constructor() {
    // Runs before the listener with which pino writes the buffer.
    process.prependListener('exit', () => {
      if (isOutputRead()) return;
      this.#isDestroyed = true;
      this.#destination.destroy();
    });
  }

  write(line: string): void {
    if (!this.#isDestroyed) this.#destination.write(line);
  }

  /** Writes the buffer. pino calls this after each line with the level `fatal`. */
  flushSync(): void {
    if (!this.#isDestroyed && isOutputRead()) this.#destination.flushSync();
  }
}

/**
 * Returns whether standard output has a reader. A write of zero bytes fails on the socket that `npm start` gives its
 * processes if the reader has gone.
 */
function isOutputRead(): boolean {
  try {
    writeSync(1, new Uint8Array(0));
    return true;
  } catch {
    return false;
  }
}

/**
 * Processes whose dependency watch logs once when a store becomes unavailable and once when it is available
 * again.
 */
const WATCHES_STORES = new Set(['web', 'worker', 'sync', 'board']);

type LogMethod = NonNullable<NonNullable<LoggerOptions['hooks']>['logMethod']>;

/**
 * Logs failures because of an unavailable store at `debug`. Otherwise each part of the process would repeat
 * them every second.
 */
const demoteStoreAway: LogMethod = function demoteStoreAway(line, method, level) {
  const [fields] = line as unknown as [{ err?: unknown } | string | undefined];
  if (level === WARN && typeof fields === 'object' && isStoreAway(fields?.err)) this.debug(...line);
  else method.apply(this, line);
};

const WARN = 40;

/** Node error codes and SQLSTATEs of a connection that cannot be opened or was closed by the server. */
const AWAY_CODES = new Set([
  ...[
    'ECONNREFUSED',
    'ECONNRESET',
    'EPIPE',
    'ENOTFOUND',
    'EAI_AGAIN',
    'ETIMEDOUT',
    'EHOSTUNREACH',
    'ENETUNREACH',
  ],
  ...['08000', '08001', '08003', '08004', '08006', '57P01', '57P02', '57P03'],
]);

/** Messages of pg and ioredis errors that have no code. */
const AWAY_MESSAGES =
  /^(Connection terminated|Connection is closed|Command timed out|Stream isn't writeable|the queue is not connected|server closed the connection)/;

/**
 * Returns whether an error means that Postgres or Redis is unavailable. Errors of other servers are wrapped
 * in error classes of Penstock.
 */
function isStoreAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, syscall } = error as NodeJS.ErrnoException;
  // The socket of an embedded Postgres that has ended.
  if (code === 'ENOENT') return syscall === 'connect';
  return (code !== undefined && AWAY_CODES.has(code)) || AWAY_MESSAGES.test(error.message);
}

/**
 * Returns the loggable parts of an error. Postgres's `detail` and `where` are omitted, because they quote the
 * rejected rows.
 */
function describe(error: unknown): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const { code, constraint } = error as { code?: unknown; constraint?: unknown };
  const loggedMessage = messageOf(error);
  return {
    type: name,
    message: loggedMessage,
    ...(code !== undefined && { code }),
    ...(constraint !== undefined && { constraint }),
    ...(cause !== undefined && { cause: describe(cause) }),
    stack: loggedMessage === message ? stack : stack?.replace(message, () => loggedMessage),
  };
}

/**
 * SQLSTATE classes whose messages quote only names, for example of constraints, tables and roles. Messages of
 * all other classes may quote values.
 */
const QUOTES_NAMES = ['08', '23', '25', '28', '3D', '40', '42', '53', '55', '57'];

/** The first quotation mark, in any language of Postgres, and the rest of the message. */
const FROM_QUOTE = /["'«»„“”‘’「].*$/s;

/** Returns the message of an error for the log. Values that Postgres quotes in it are redacted. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code, severity } = error as { code?: unknown; severity?: unknown };
  const isPostgres = typeof code === 'string' && severity !== undefined;
  if (!isPostgres || QUOTES_NAMES.includes(code.slice(0, 2))) return error.message;
  return error.message.replace(FROM_QUOTE, '[redacted]');
}

/**
 * Number of lines that may be logged at once. An operator at a terminal, or a test, sees every line of a
 * small number of requests.
 */
const BURST = 200;

/** Lines per second after that. A burst that never ends fills a disk with at most about 250 MB a day. */
const PER_SECOND = 10;

/** Milliseconds until the number of omitted lines is logged. */
const REPORT_AFTER_MS = 10_000;

/**
 * Creates a rate-limited log for unauthenticated requests. Anyone can send any number of them, so their lines
 * are limited, and the omitted lines are counted in a line of their own.
 *
 * @param now returns monotonic milliseconds
 */
export function createStrangersLog(log: Log, now: () => number = () => performance.now()) {
  let left = BURST;
  let countedAt = now();
  let omitted = 0;
  let timer: NodeJS.Timeout | undefined;

  function reportOmitted(): void {
    clearTimeout(timer);
    timer = undefined;
    if (omitted > 0)
      log.warn(
        { left_out: omitted },
        'unauthenticated requests were not logged individually, to limit the log',
      );
    omitted = 0;
  }

  return {
    line(level: 'info' | 'warn' | 'error', fields: object, message: string): void {
      left = Math.min(BURST, left + ((now() - countedAt) / 1000) * PER_SECOND);
      countedAt = now();
      if (left >= 1) {
        left--;
        log[level](fields, message);
        return;
      }
      omitted++;
      timer ??= setTimeout(reportOmitted, REPORT_AFTER_MS).unref();
    },

    /** Logs the number of omitted lines, if any. */
    stop: async () => reportOmitted(),
  };
}

export type StrangersLog = ReturnType<typeof createStrangersLog>;

/** Names of pino's numeric levels in readable lines. The level `info` is not shown. */
const LEVELS: Record<number, string> = { 10: 'trace', 20: 'debug', 40: 'WARN', 50: 'ERROR', 60: 'FATAL' };

/** SGR colour codes by level: grey, yellow, red. */
const COLOURS: Record<number, number> = { 10: 90, 20: 90, 40: 33, 50: 31, 60: 31 };

/** Members that `readableLine` writes at a fixed place in the line or omits. */
const WRITTEN_APART = new Set(['level', 'time', 'process', 'pid', 'instance', 'msg', 'err']);

/** Width of the longest process name. */
const NAME = 7;

/**
 * Formats a line of the log for a terminal: time, process, message, and the members as `name=value`. Text
 * that is not a JSON object is returned unchanged.
 *
 * @param line line of pino, with its line feed
 * @param colours whether the terminal shows colours
 */
export function readableLine(line: string, colours: boolean): string {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(line);
  } catch {
    return line;
  }
  if (entry === null || typeof entry !== 'object') return line;
  const { level, time, process, msg, err } = entry;
  const word = LEVELS[level as number];
  const paint = (text: string, code: number | undefined) =>
    colours && code !== undefined ? `\u001b[${code}m${text}\u001b[0m` : text;
  const members = Object.entries(entry)
    .filter(([name, value]) => !WRITTEN_APART.has(name) && value !== undefined)
    .map(([name, value]) => `${name}=${formatValue(value)}`);
  const what = paint(
    `${word === undefined ? '' : `${word} `}${escapeControls(String(msg ?? ''))}`,
    COLOURS[level as number],
  );
  const parts = [
    String(time ?? '').slice(11, 19),
    escapeControls(String(process ?? '')).padEnd(NAME),
    [what, ...(members.length > 0 ? [paint(members.join(' '), colours ? 90 : undefined)] : [])].join('  '),
  ];
  return `${parts.join('  ')}${describeError(err, Number(level))}\n`;
}

/** Formats an error: its message, or its whole stack from level `error` on, each line on its own. */
function describeError(err: unknown, level: number): string {
  if (err === null || typeof err !== 'object') return '';
  const { message, stack } = err as { message?: unknown; stack?: unknown };
  const lines = level >= 50 && typeof stack === 'string' ? stack.split('\n') : [String(message ?? '')];
  return lines.map((line) => `\n          ${escapeControls(line)}`).join('');
}

/** Returns a word unchanged and any other value as JSON. */
function formatValue(value: unknown): string {
  const text = typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  return escapeControls(text ?? 'null');
}

/**
 * Escapes control characters as in JSON. A terminal would interpret them, and a line feed would split the
 * line.
 */
function escapeControls(text: string): string {
  return text.replace(/\p{Cc}/gu, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
