import pg from 'pg';
import { SourceError } from '../source.ts';

/** Of the connection: nobody but the owner can mend address and certificate. */
const CONFIG_CODES = new Set(['ENOTFOUND', 'EAI_AGAIN', 'ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH']);
/** Not signed in, no such database, no such schema, name or permission in the statement, a value that a view chokes on. */
const CONFIG_CLASSES = ['28', '3D', '3F', '42', '22'];
const TLS = /SSL|TLS|certificate/i;

/**
 * @param where host, port and database
 * @returns what the owner reads; Postgres's own words hold names and never a password
 */
export function toSourceError(error: unknown, where: string): SourceError {
  if (error instanceof SourceError) return error;
  const reason = isConfig(error) ? 'config' : 'failed';
  return new SourceError(reason, `${where}: ${messageOf(error)}`, { cause: error });
}

function isConfig(error: unknown): boolean {
  const code = codeOf(error);
  if (error instanceof pg.DatabaseError) return CONFIG_CLASSES.some((known) => code.startsWith(known));
  return CONFIG_CODES.has(code) || code.startsWith('ERR_TLS') || TLS.test(messageOf(error));
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return code;
  // Of a name with several addresses, the attempts come together.
  return error instanceof AggregateError ? codeOf(error.errors[0]) : '';
}

function messageOf(error: unknown): string {
  if (error instanceof AggregateError && !error.message) return messageOf(error.errors[0]);
  return error instanceof Error ? error.message : String(error);
}
