import type { Connection, Pool } from '../../../src/store/database.ts';

/** A statement as a function of the store has sent it. */
export interface Sent {
  /** The file of src/store that sent it, and the line there. */
  file: string;
  line: number;
  name?: string;
  text: string;
  values: unknown[];
}

/** What a plan is made for; the others neither read nor write rows. */
const PLANNED = /^\s*(select|with|insert|update|delete)\b/i;

/** A connection, or a pool of one, that notes what is sent by it. Transactions are the caller's: none is begun or ended. */
export function recordingOn(connection: Connection): { store: Connection & Pool; sent: Sent[] } {
  const sent: Sent[] = [];
  const query = async (given: string | Omit<Sent, 'file' | 'line'>, values: unknown[] = []) => {
    const { text, ...rest } = typeof given === 'string' ? { text: given, values } : given;
    if (!PLANNED.test(text)) return { rows: [], rowCount: null };
    const [, file, line] = new Error().stack!.match(/src\/store\/([\w/-]+\.ts):(\d+)/) ?? [];
    if (!file) throw new Error(`no file of the store has sent ${text}`);
    sent.push({ file, line: Number(line), text, ...rest, values: rest.values ?? [] });
    return connection.query(given as never, values);
  };
  const nothing = () => {};
  const store = { query, connect: async () => store, release: nothing, on: nothing, off: nothing };
  return { store: store as unknown as Connection & Pool, sent };
}
