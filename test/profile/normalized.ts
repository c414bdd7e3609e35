import { normalizeAttributes } from '../../src/profile/attributes.ts';
import type { AttributesDelta } from '../../src/profile/attributes-delta.ts';
import type { Json } from '../../src/profile/json.ts';

export const now = Date.UTC(2026, 0, 31, 12);

export function deltaOf(object: Record<string, Json>): AttributesDelta {
  const result = normalizeAttributes(object, 'service_id', now);
  if ('error' in result) throw new Error(result.error);
  return result.delta;
}

export function errorOf(object: Record<string, Json>): string | undefined {
  const result = normalizeAttributes(object, 'service_id', now);
  return 'error' in result ? result.error : undefined;
}
