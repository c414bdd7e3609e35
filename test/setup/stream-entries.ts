import { StreamEntries, type StreamEntry } from '../../src/store/stream-log.ts';

/** What one workspace has done, as the log takes it. */
export function entriesOf(entries: StreamEntry[]): StreamEntries {
  const all = new StreamEntries(entries[0]!.workspaceId);
  for (const entry of entries) all.add(entry);
  return all;
}
