import { type Json, JsonText } from '../../src/profile/json.ts';
import { StreamEntries, type StreamEntry } from '../../src/store/stream-log.ts';

type GivenEntry = Omit<StreamEntry, 'detail'> & { detail?: Json };

/** Creates the entries of one workspace as the log stores them. */
export function entriesOf(entries: GivenEntry[]): StreamEntries {
  const all = new StreamEntries(entries[0]!.workspaceId);
  for (const { detail, ...entry } of entries)
    all.add({ ...entry, ...(detail !== undefined && { detail: new JsonText(JSON.stringify(detail)) }) });
  return all;
}
