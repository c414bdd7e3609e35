import fc from 'fast-check';
import { hostileText, hostileValue } from './hostile.ts';
import { RawJson } from './raw-json.ts';

type Change = [
  place: number,
  how: 'replace' | 'add' | 'remove' | 'rename' | 'repeat',
  name: string,
  value: unknown,
];

interface Place {
  holder: Record<string, unknown>;
  name: string;
}

/** Changes the example in a few places, so that hostile values reach the code after validation. */
export function mutated(example: unknown): fc.Arbitrary<unknown> {
  const change = fc.tuple(
    fc.nat({ max: 1000 }),
    fc.constantFrom(
      'replace' as const,
      'replace' as const,
      'add' as const,
      'remove' as const,
      'rename' as const,
      'repeat' as const,
    ),
    hostileText,
    hostileValue,
  );
  return fc.array(change, { maxLength: 4 }).map((changes) => applied(example, changes));
}

function applied(example: unknown, changes: Change[]): unknown {
  const root: Record<string, unknown> = { body: structuredClone(example) };
  for (const [position, how, name, given] of changes) {
    const value = copyOf(given);
    const targets = placesIn(root);
    if (targets.length === 0) break;
    const { holder, name: old } = targets[position % targets.length]!;
    const there = holder[old];
    if (how === 'replace') holder[old] = value;
    else if (how === 'remove') delete holder[old];
    else if (how === 'repeat' && Array.isArray(holder))
      for (let one = 0; one < 60; one++) holder.push(copyOf(there));
    else if (how === 'rename' && !Array.isArray(holder)) {
      delete holder[old];
      define(holder, name, there);
    } else define(holder, name, value);
  }
  return root.body ?? {};
}

/** Copies the value, because values are reused and are changed in place. */
function copyOf(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || value instanceof RawJson) return value;
  if (Array.isArray(value)) return value.map(copyOf);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, copyOf(member)]));
}

/** Sets an own member, whatever its name is. */
function define(holder: Record<string, unknown>, name: string, value: unknown): void {
  if (Array.isArray(holder)) holder.push(value);
  else Object.defineProperty(holder, name, { value, enumerable: true, configurable: true, writable: true });
}

/** Lists every member at every depth, except inside values from changes, which may be deep. */
function placesIn(holder: Record<string, unknown>, depth = 0): Place[] {
  return Object.entries(holder).flatMap(([name, value]) => [
    { holder, name },
    ...(depth < 12 && typeof value === 'object' && value !== null && !(value instanceof RawJson)
      ? placesIn(value as Record<string, unknown>, depth + 1)
      : []),
  ]);
}
