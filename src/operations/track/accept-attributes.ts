import { newId } from '../../ids.ts';
import type { AcceptedAttributes } from '../../jobs/envelope.ts';
import { normalizeAttributes } from '../../profile/attributes.ts';
import type { AttributesDelta } from '../../profile/attributes-delta.ts';
import { namesOneUser } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import type { Judge, Verdict } from './accept.ts';

/** Judges an attribute object whose shape and identifier are right already. */
export function judgeAttributes(object: Record<string, Json>, base: Judge): Verdict {
  const normalized = normalizeAttributes(object, base.serviceIdField, base.now);
  if ('error' in normalized) return normalized;
  const stranger = strangeGroup(normalized.delta, base);
  if (stranger) return { error: stranger };
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

/**
 * Judges an import of push tokens: at least one token, and nothing that names one user. Each token that nobody
 * has becomes an anonymous profile with the object's attributes.
 */
export function judgeTokenImport(
  object: Record<string, Json>,
  base: Omit<Judge, 'identifier' | 'create'>,
): Verdict {
  if (namesOneUser(object, base.serviceIdField)) {
    return {
      error: `'push_token_import' is not valid: it must not carry 'external_id', 'user_alias' or '${base.serviceIdField}'`,
    };
  }
  const normalized = normalizeAttributes(object, base.serviceIdField, base.now);
  if ('error' in normalized) return normalized;
  if (!normalized.delta.push_tokens?.length) return { error: "'push_tokens' is required" };
  const stranger = strangeGroup(normalized.delta, base);
  if (stranger) return { error: stranger };
  return {
    object: {
      kind: 'attributes',
      id: newId(),
      request: 0,
      index: base.index,
      ...normalized.delta,
    },
  };
}

/** The text that refuses a group which the workspace does not have, if there is one. */
function strangeGroup(
  { subscription_groups }: AttributesDelta,
  { hasGroup }: Pick<Judge, 'hasGroup'>,
): string | undefined {
  const id = subscription_groups?.find(
    (group) => !hasGroup(group.subscription_group_id),
  )?.subscription_group_id;
  return id && `'subscription_groups' is not valid: no subscription group has the id ${id}`;
}
