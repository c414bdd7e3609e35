import type { Operation } from '../operations/operation.ts';

/** Direct operations that change nothing but the workspace's data, and answer with no id of their own. */
const COPIED_DIRECT: ReadonlySet<string> = new Set(['sms.invalid_phone_numbers.remove']);

/** Operations of the other service that we do not have, and which of ours does the same with the same body. */
const SAME_AS: readonly { path: string; id: string; ours: string }[] = [
  { path: '/users/track/sync', id: 'users.track.sync', ours: 'users.track' },
];

/** Paths beneath which another service changes users, their addresses, numbers and states, or what people see of them. */
const CHANGING = /^\/(?:v\d+\/)?(?:users|sms|email|subscription|preference_center|scim|cdi)(?:\/|$)/;

/** Exports ask by POST, and change nobody. */
const EXPORTING = /^\/users\/export\//;

const READING: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

/** What is carried out here of a request that the upstream has taken. */
export interface CopiedOperation {
  /** For the metric and the log. */
  id: string;
  /** The path that it has here. */
  path: string;
}

/** Operations that are carried out here as well: by method and path, to the letter. */
export function copiedOperations(operations: readonly Operation[]): ReadonlyMap<string, CopiedOperation> {
  const known = new Map<string, CopiedOperation>();
  for (const { kind, id, method, path } of operations)
    if (kind === 'queued' || COPIED_DIRECT.has(id)) known.set(`${method} ${path}`, { id, path });
  for (const { path, id, ours } of SAME_AS) {
    const same = operations.find((operation) => operation.id === ours);
    if (same) known.set(`${same.method} ${path}`, { id, path: same.path });
  }
  return known;
}

/**
 * Whether a request that is only forwarded may have changed what the copy here has as well. The upstream may read a path
 * less strictly than we do: with other cases, escapes and slashes it is the same path.
 */
export function mayChangeUsers(method: string, path: string): boolean {
  if (READING.has(method)) return false;
  const read = unescaped(path).toLowerCase().replace(/\/+/g, '/');
  return CHANGING.test(read) && !EXPORTING.test(read);
}

function unescaped(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
