import { writeSync } from 'node:fs';
import { stderr, stdout } from 'node:process';
import { type LoggerOptions, pino, stdTimeFunctions } from 'pino';
import { isoTime } from './format.ts';
import { tracing } from './tracing.ts';

/** Members of a line that never reach it: secrets, and what could name a person. */
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

/** Bytes of lines that are gathered before they are written, and milliseconds after which they are in any case. */
const BUFFER = 8192;
const FLUSH_INTERVAL = 200;

export type Log = ReturnType<typeof createLog>;

export interface LogOptions {
  /** As LOG_FORMAT. */
  format?: string;
  /** Id of the process, as in the table `processes`. */
  id?: string | undefined;
  /** File descriptor that the lines are written to: standard output by default, or standard error. */
  to?: 1 | 2 | undefined;
}

/**
 * One line per event on standard output: JSON, or as people read it, which a terminal gets unless told. Of the levels,
 * error says that a person must act now, and warn that it healed itself. Info is what an operator wants to read on a
 * quiet day.
 *
 * Web and worker gather their lines for up to 200 ms, since a write for each would be a good part of what a small
 * request costs. What is gathered when the process exits is written then. A process that is killed loses the last of
 * them.
 */
export function createLog(
  name: 'web' | 'worker' | 'sync' | 'board' | 'release' | 'start' | 'test',
  level: string,
  { format = 'auto', id, to = 1 }: LogOptions = {},
) {
  const terminal = to === 1 ? stdout : stderr;
  const isReadable = format === 'readable' || (format === 'auto' && terminal.isTTY);
  // A person at a terminal waits for each line.
  const gathers = (name === 'web' || name === 'worker') && !isReadable && to === 1;
  const destination = pino.destination(
    gathers
      ? { dest: 1, sync: false, minLength: BUFFER, periodicFlush: FLUSH_INTERVAL }
      : { dest: to, sync: true },
  );
  if (gathers) endWithReader(destination);
  return pino(
    {
      level,
      base: { process: name, pid: process.pid, ...(id && { instance: id }) },
      timestamp: stdTimeFunctions.isoTime,
      redact: { paths: redacted, censor: '[redacted]' },
      serializers: { err: describe },
      ...(WATCHES_STORES.has(name) && { hooks: { logMethod: demoteStoreAway } }),
      // By these a line and its trace find each other.
      ...(tracing && { mixin: tracing.ids }),
    },
    isReadable
      ? { write: (line) => destination.write(readableLine(line, hasColours(terminal))) }
      : destination,
  );
}

/** Members of a line that is about nothing but numbers and ids; undefined: left out. */
export type LineFields = Record<string, string | number | undefined>;

/**
 * Writes a line as `log[level](fields, message)` would: the same bytes in 1.2 µs instead of 2.1 (Node 20, 2026-11-25). For lines
 * that every request has, whose members are never redacted, and none of which is an object.
 */
export function writeLine(
  log: Log,
  fields: LineFields,
  { level, message }: { level: 'info' | 'warn'; message: string },
): void {
  const inner = log as unknown as Record<symbol, unknown>;
  const stream = inner[streamSym!] as { write(line: string): unknown } | undefined;
  // A mixin knows more than what is given.
  if (!stream || inner[mixinSym!]) {
    log[level](fields, message);
    return;
  }
  if (!log.isLevelEnabled(level)) return;
  let line = `{"level":${log.levels.values[level]},"time":"${isoTime(Date.now())}"${inner[chindingsSym!]}`;
  for (const name in fields) {
    const value = fields[name];
    if (value !== undefined) line += `,"${name}":${JSON.stringify(value)}`;
  }
  stream.write(`${line},"msg":"${message}"}\n`);
}

const { streamSym, chindingsSym, mixinSym } = pino.symbols as unknown as Record<string, symbol>;

/** Node looks at what the terminal can, and at NO_COLOR. */
function hasColours(terminal: typeof stdout | typeof stderr): boolean {
  return terminal.isTTY && terminal.hasColors();
}

/**
 * Gives up the last lines when whoever read them has gone, as when `npm start` was killed: when the process exits,
 * sonic-boom would try to write them for ever. A socket, which `npm start` gives its processes, says so when nothing is
 * written to it.
 */
function endWithReader(destination: ReturnType<typeof pino.destination>): void {
  const flushSync = destination.flushSync.bind(destination);
  destination.flushSync = () => {
    try {
      writeSync(1, new Uint8Array(0));
    } catch {
      return;
    }
    flushSync();
  };
}

/** Processes whose dependency watch logs once that a store went away, and once that it is back. */
const WATCHES_STORES = new Set(['web', 'worker', 'sync', 'board']);

type LogMethod = NonNullable<NonNullable<LoggerOptions['hooks']>['logMethod']>;

/** Logs at `debug` what failed because a store is away: every part of a process would repeat the news each second. */
const demoteStoreAway: LogMethod = function demoteStoreAway(line, method, level) {
  const [fields] = line as unknown as [{ err?: unknown } | string | undefined];
  if (level === WARN && typeof fields === 'object' && isStoreAway(fields?.err)) this.debug(...line);
  else method.apply(this, line);
};

const WARN = 40;

/** Codes of Node and SQLSTATEs of a connection that cannot be made, or was ended by the server. */
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

/** Errors of pg and ioredis that have no code. */
const AWAY_MESSAGES =
  /^(Connection terminated|Connection is closed|Command timed out|Stream isn't writeable|the queue is not connected|server closed the connection)/;

/** Whether an error says that Postgres or Redis is away. Errors of other servers are wrapped in errors of ours. */
function isStoreAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, syscall } = error as NodeJS.ErrnoException;
  // The socket of an embedded Postgres that has ended.
  if (code === 'ENOENT') return syscall === 'connect';
  return (code !== undefined && AWAY_CODES.has(code)) || AWAY_MESSAGES.test(error.message);
}

/** What an error says of itself. Not Postgres's `detail` and `where`, which quote the rows that were refused. */
function describe(error: unknown): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const { code, constraint } = error as { code?: unknown; constraint?: unknown };
  const told = messageOf(error);
  return {
    type: name,
    message: told,
    ...(code !== undefined && { code }),
    ...(constraint !== undefined && { constraint }),
    ...(cause !== undefined && { cause: describe(cause) }),
    stack: told === message ? stack : stack?.replace(message, () => told),
  };
}

/**
 * SQLSTATE classes in whose messages what is quoted is a name of ours, of a constraint, a table, a role and their
 * like. In all others it may be a value.
 */
const QUOTES_NAMES = ['08', '23', '25', '28', '3D', '40', '42', '53', '55', '57'];

/** The first mark of a quotation, in any language that Postgres speaks, and all that follows it. */
const FROM_QUOTE = /["'«»„“”‘’「].*$/s;

/** An error's message for the log; of Postgres's own, without the values that they quote. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code, severity } = error as { code?: unknown; severity?: unknown };
  const isPostgres = typeof code === 'string' && severity !== undefined;
  if (!isPostgres || QUOTES_NAMES.includes(code.slice(0, 2))) return error.message;
  return error.message.replace(FROM_QUOTE, '[redacted]');
}

/** Lines at once; a person at a terminal, or a test, sees each of their own. */
const BURST = 200;

/** And a second, for ever: a flood fills a disk with some 250 MB a day at most. */
const PER_SECOND = 10;

/** Milliseconds until what was left out is told. */
const TELL_AFTER = 10_000;

/**
 * The lines about requests of people whom nobody knows. Anyone can make as many as they like, so that their number is
 * bounded, and what was left out is counted in a line of its own.
 *
 * @param now milliseconds that only go forward
 */
export function createStrangersLog(log: Log, now: () => number = () => performance.now()) {
  let left = BURST;
  let countedAt = now();
  let leftOut = 0;
  let timer: NodeJS.Timeout | undefined;

  function tell(): void {
    clearTimeout(timer);
    timer = undefined;
    if (leftOut > 0)
      log.warn({ left_out: leftOut }, 'unauthenticated requests not logged individually (rate-limited)');
    leftOut = 0;
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
      leftOut++;
      timer ??= setTimeout(tell, TELL_AFTER).unref();
    },

    /** Tells what was left out. */
    stop: async () => tell(),
  };
}

export type StrangersLog = ReturnType<typeof createStrangersLog>;

/** What pino's numbers stand for, where a person has to see it. */
const LEVELS: Record<number, string> = { 10: 'trace', 20: 'debug', 40: 'WARN', 50: 'ERROR', 60: 'FATAL' };

/** SGR codes of a terminal by the level: grey, yellow, red. */
const COLOURS: Record<number, number> = { 10: 90, 20: 90, 40: 33, 50: 31, 60: 31 };

/** Members that stand elsewhere in the line. */
const PLACED = new Set(['level', 'time', 'process', 'pid', 'instance', 'msg', 'err']);

/** Width of the longest name of a process. */
const NAME = 7;

/**
 * A line of the log as a person reads it at a terminal: time, process, what happened, and its members as `name=value`.
 * What is no JSON object stays as it is.
 *
 * @param line of pino, with its line feed
 * @param colours whether the terminal has them
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
    .filter(([name, value]) => !PLACED.has(name) && value !== undefined)
    .map(([name, value]) => `${name}=${shown(value)}`);
  const what = paint(
    `${word === undefined ? '' : `${word} `}${harmless(String(msg ?? ''))}`,
    COLOURS[level as number],
  );
  const parts = [
    String(time ?? '').slice(11, 19),
    harmless(String(process ?? '')).padEnd(NAME),
    [what, ...(members.length > 0 ? [paint(members.join(' '), colours ? 90 : undefined)] : [])].join('  '),
  ];
  return `${parts.join('  ')}${describeError(err, Number(level))}\n`;
}

/** Its message; of errors that need a person its stack as well, each line on its own. */
function describeError(err: unknown, level: number): string {
  if (err === null || typeof err !== 'object') return '';
  const { message, stack } = err as { message?: unknown; stack?: unknown };
  const lines = level >= 50 && typeof stack === 'string' ? stack.split('\n') : [String(message ?? '')];
  return lines.map((line) => `\n          ${harmless(line)}`).join('');
}

/** Words as they are, all else as JSON. */
function shown(value: unknown): string {
  const text = typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  return harmless(text ?? 'null');
}

/** Control characters as JSON escapes: a terminal would obey them, and a line would be two. */
function harmless(text: string): string {
  return text.replace(/\p{Cc}/gu, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
