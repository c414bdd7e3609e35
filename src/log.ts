import { pino } from 'pino';

/**
 * Members that never reach a log line, wherever they stand: secrets, and what could name a person.
 * Pino cannot match a key at any depth, so the paths name the depths that our lines have.
 */
const secret = ['authorization', 'api_key', 'apiKey', 'password', 'cookie'];
const personal = ['email', 'phone', 'external_id', 'user_alias', 'object', 'objects', 'body'];
const redact = [...secret, ...personal].flatMap((name) => [name, `*.${name}`, `*.*.${name}`]);

export type Log = ReturnType<typeof createLog>;

/**
 * One JSON line per event on standard output. error: a person must act now; warn: it healed itself;
 * info: what an operator wants to read on a quiet day.
 */
export function createLog(process: 'web' | 'worker' | 'board' | 'release' | 'start' | 'test', level: string) {
  return pino({ level, base: { process }, redact: { paths: redact, censor: '[redacted]' } });
}
