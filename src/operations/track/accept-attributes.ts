import { newId } from '../../ids.ts';
import type { AcceptedAttributes } from '../../jobs/envelope.ts';
import { normalizeAttributes } from '../../profile/attributes.ts';
import type { Json } from '../../profile/json.ts';
import { isPresent, type Judge, type Verdict } from './accept.ts';

/** Judges an attribute object whose shape and identifier are right already. */
export function judgeAttributes(object: Record<string, Json>, base: Judge): Verdict {
  const normalized = normalizeAttributes(object, base.serviceIdField, base.now);
  if ('error' in normalized) return normalized;
  const stranger = normalized.delta.subscription_groups?.find(
    (group) => !base.hasGroup(group.subscription_group_id),
  );
  if (stranger) {
    const { subscription_group_id: id } = stranger;
    return { error: `'subscription_groups' is not valid: no subscription group has the id ${id}` };
  }
  const attributes: AcceptedAttributes = {
    kind: 'attributes',
    id: base.id,
    request: 0,
    index: base.index,
    create: base.create,
    identifier: base.identifier,
    ...normalized.delta,
  };
  return { object: attributes };
}

/** Judges an import of push tokens: no identifier, at least one token; each new token becomes an anonymous profile. */
export function judgeTokenImport(
  object: Record<string, Json>,
  base: Omit<Judge, 'identifier' | 'create'>,
): Verdict {
  if (isPresent(object.external_id) || isPresent(object[base.serviceIdField])) {
    return {
      error: `'push_token_import' is not valid: it must not carry 'external_id' or '${base.serviceIdField}'`,
    };
  }
  const normalized = normalizeAttributes(object, base.serviceIdField, base.now);
  if ('error' in normalized) return normalized;
  if (!normalized.delta.push_tokens?.length) return { error: "'push_tokens' is required" };
  return {
    object: {
      kind: 'attributes',
      id: newId(),
      request: 0,
      index: base.index,
      create: true,
      ...normalized.delta,
    },
  };
}
