import { pino, stdTimeFunctions } from 'pino';

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

/**
 * One JSON line per event on standard output. error: a person must act now; warn: it healed itself;
 * info: what an operator wants to read on a quiet day.
 *
 * Web and worker gather their lines for up to 200 ms, since a write for each would be a good part of what a
 * small request costs; what is gathered when the process exits is written then. A process that is killed loses
 * the last of them.
 */
export function createLog(process: 'web' | 'worker' | 'board' | 'release' | 'start' | 'test', level: string) {
  const gathers = process === 'web' || process === 'worker';
  const destination = pino.destination(
    gathers
      ? { dest: 1, sync: false, minLength: BUFFER, periodicFlush: FLUSH_INTERVAL }
      : { dest: 1, sync: true },
  );
  return pino(
    {
      level,
      base: { process },
      timestamp: stdTimeFunctions.isoTime,
      redact: { paths: redacted, censor: '[redacted]' },
      serializers: { err: describe },
    },
    destination,
  );
}

/** What an error says of itself. Not Postgres's `detail` and `where`, which quote the rows that were refused. */
function describe(error: unknown): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const { code, constraint } = error as { code?: unknown; constraint?: unknown };
  return {
    type: name,
    message,
    ...(code !== undefined && { code }),
    ...(constraint !== undefined && { constraint }),
    ...(cause !== undefined && { cause: describe(cause) }),
    stack,
  };
}
