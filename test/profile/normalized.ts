import type { AttributesDelta } from '../../src/profile/attribute-rule.ts';
import { type AttributeContext, normalizeAttributes } from '../../src/profile/attributes.ts';
import type { Json } from '../../src/profile/json.ts';

export const now = Date.UTC(2026, 0, 31, 12);

export const context: AttributeContext = { serviceIdField: 'service_id', now, longStrings: 'cut' };

export function deltaOf(object: Record<string, Json>): AttributesDelta {
  const result = normalizeAttributes(object, context);
  if ('error' in result) throw new Error(result.error);
  return result.delta;
}

export function errorOf(object: Record<string, Json>): string | undefined {
  const result = normalizeAttributes(object, context);
  return 'error' in result ? result.error : undefined;
}
