import type { Connection, Pool } from '../../../src/store/database.ts';
import { siteOf } from './sources.ts';

/** A statement that a function of the store has sent. */
export interface Sent {
  /** The function of src/store that sent it, as `file name`. */
  site: string;
  name?: string;
  text: string;
  values: unknown[];
}

/** Statements that have a plan; others neither read nor write rows, and are not executed. */
const PLANNED = /^\s*(select|with|insert|update|delete)\b/i;

/**
 * Wraps a connection as a connection and a pool that record statements. Its transactions are the connection's
 * own.
 */
export function recordingOn(connection: Connection) {
  const sent: Sent[] = [];
  /** Each `file:line` that has sent a statement. */
  const lines = new Set<string>();
  const query = async (given: string | Omit<Sent, 'site'>, values: unknown[] = []) => {
    const [, file, line] = new Error().stack!.match(/src\/store\/([\w/-]+\.ts):(\d+)/) ?? [];
    if (file) lines.add(`${file}:${line}`);
    const { text, ...rest } = typeof given === 'string' ? { text: given, values } : given;
    if (!PLANNED.test(text)) return { rows: [], rowCount: null };
    if (!file) throw new Error(`no file of the store has sent ${text}`);
    sent.push({ ...rest, site: siteOf(file, Number(line)), text, values: rest.values ?? [] });
    return typeof given === 'string' ? connection.query(text, values) : connection.query(given);
  };
  const nothing = () => {};
  const store = {
    ...{ query, connect: async () => store, release: nothing, on: nothing, off: nothing },
    // `sendPipelined` corks the stream of this connection.
    connection: (connection as unknown as { connection: object }).connection,
  };
  return { store: store as unknown as Connection & Pool, sent, lines };
}
