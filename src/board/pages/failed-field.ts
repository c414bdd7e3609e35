import { toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';

/** A value of a failed object that an operator can correct. */
export interface Leaf {
  /** Names of the members that lead to it. */
  path: string[];
  value: string | number | boolean | null;
}

/** What a failed object is about. */
interface FailedObject {
  /** Identifier of the user, as a search text. */
  user: string | undefined;
  /** The value that the reason names; otherwise the name of the event or product. */
  leaf: Leaf | undefined;
  /** Time of the event, as sent by the client. */
  time: string | undefined;
}

/** Maximum number of values in the form, and the depth at which they are looked for. */
const MAX_LEAVES = 12;
const MAX_DEPTH = 4;

/** Members that the service has added, and that a correction must not change. */
const OURS = new Set(['id', 'kind', 'index', 'request', 'create', 'input_array']);

/** Returns the values of an object that can be corrected. Values that the reason names come first. */
export function leavesOf(object: Json, reason: string): Leaf[] {
  const leaves: Leaf[] = [];
  const visit = (value: Json, path: string[]) => {
    if (typeof value !== 'object' || value === null) {
      leaves.push({ path, value });
      return;
    }
    if (path.length >= MAX_DEPTH || Array.isArray(value)) return;
    for (const [name, member] of Object.entries(value))
      if (path.length > 0 || !OURS.has(name)) visit(member, [...path, name]);
  };
  if (typeof object === 'object' && object !== null) visit(object, []);
  const named = (leaf: Leaf) => (isNamed(leaf, reason) ? 0 : 1);
  return leaves.sort((one, other) => named(one) - named(other)).slice(0, MAX_LEAVES);
}

/** Whether the reason names the member, in quotes, for example `'time'`, `"time"` or `'properties.size'`. */
export const isNamed = ({ path }: Leaf, reason: string): boolean =>
  [path.join('.'), path.at(-1)].some(
    (name) => name !== undefined && ["'", '"', '`'].some((quote) => reason.includes(quote + name + quote)),
  );

/** Returns the name of the form field for a value. A dot in a member name is escaped, so that each path has its own name. */
export const fieldName = ({ path }: Leaf): string =>
  `set.${path.map((name) => name.replaceAll('~', '~0').replaceAll('.', '~1')).join('.')}`;

/** Returns the label of a value. A member name with a dot is quoted. */
export const fieldLabel = ({ path }: Leaf): string =>
  path.map((name) => (name.includes('.') ? JSON.stringify(name) : name)).join('.');

/** Returns the object with other values. */
export function withValues(object: Json, values: readonly Leaf[]): Json {
  const copy = structuredClone(object);
  for (const { path, value } of values) {
    let inner = copy as Record<string, Json>;
    for (const name of path.slice(0, -1)) inner = inner[name] as Record<string, Json>;
    inner[path.at(-1)!] = value;
  }
  return copy;
}

/**
 * Reads a value from a form with the type that it had. A number that becomes a text, and a value that was null, stay a
 * text.
 */
export function readLike(text: string, former: Leaf['value']): Leaf['value'] {
  if (former === null && text === '') return null;
  if (typeof former === 'number' && text.trim() !== '' && Number.isFinite(Number(text))) return Number(text);
  if (typeof former === 'boolean' && (text === 'true' || text === 'false')) return text === 'true';
  return text;
}

/** Describes a failed object for a list. */
export function describeFailed(object: Json, reason: string): FailedObject {
  if (typeof object !== 'object' || object === null || Array.isArray(object))
    return { user: undefined, leaf: undefined, time: undefined };
  const leaves = leavesOf(object, reason);
  const first = leaves[0];
  const leaf =
    first && isNamed(first, reason)
      ? first
      : leaves.find(({ path }) => path.length === 1 && (path[0] === 'name' || path[0] === 'product_id'));
  return { user: userOf(object), leaf, time: typeof object.time === 'string' ? object.time : undefined };
}

function userOf(object: Record<string, Json>): string | undefined {
  const nested = object.user as Record<string, Json> | undefined;
  const identifier = (object.identifier ?? nested?.identifier) as Record<string, Json> | undefined;
  if (!identifier) return undefined;
  const { external_id, service_id, email, phone, user_alias } = identifier;
  if (user_alias) {
    const alias = user_alias as { alias_label?: Json; alias_name?: Json };
    return `${alias.alias_label}:${alias.alias_name}`;
  }
  const given = external_id ?? email ?? phone ?? service_id;
  if (typeof given !== 'string') return undefined;
  return given === service_id && /^[0-9a-f-]{36}$/.test(given) ? toServiceId(given) : given;
}
