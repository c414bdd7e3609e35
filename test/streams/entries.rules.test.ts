import { NIL, stringify, validate, version } from 'uuid';
import { expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { JsonText } from '../../src/profile/json.ts';
import { StreamEntries } from '../../src/store/stream-log.ts';

/** Returns the elements of a `uuid[]` of the wire protocol. */
function idsIn(array: Buffer): string[] {
  const [header, element] = [20, 20];
  return Array.from({ length: (array.length - header) / element }, (_, position) =>
    stringify(array.subarray(header + position * element + 4, header + (position + 1) * element)),
  );
}

const entriesOf = (some: number) => {
  const entries = new StreamEntries(NIL);
  const detail = new JsonText('{}');
  for (let n = 0; n < some; n++) entries.add({ kind: 'a', profileId: NIL, detail });
  return entries;
};

test('an entry without an id gets a unique UUID of version 7', () => {
  const entries = StreamEntries.joined(Array.from({ length: 21 }, () => entriesOf(300)));
  const given = newId();
  entries.add({ kind: 'i', profileId: NIL, id: given });
  const [kinds, , ids] = entries.columns();
  const all = idsIn(ids);
  expect(all).toHaveLength(21 * 300 + 1);
  expect(kinds).toHaveLength(all.length);
  expect(new Set(all).size).toBe(all.length);
  expect(all.every((id) => validate(id) && version(id) === 7)).toBe(true);
  expect(all.at(-1)).toBe(given);
});
