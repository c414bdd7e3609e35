import { newId } from '../../ids.ts';
import type { TrackKind, TrackObject } from '../../jobs/envelope.ts';
import type { Identifier } from '../../profile/identifier.ts';
import { createsProfile, identifierOf } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { findUnstorable } from '../../profile/values.ts';
import { compile, describeError } from '../../schemas/compile.ts';
import { attributesSchema, eventSchema, purchaseSchema } from '../../schemas/track.ts';
import { BLOCKED } from '../blocked.ts';
import type { Caller } from '../operation.ts';
import { judgeEvent, judgePurchase } from './accept-activity.ts';
import { judgeAttributes, judgeTokenImport } from './accept-attributes.ts';

/** An object that can be applied, or the text of why it cannot. */
export type Verdict = { object: TrackObject } | { error: string };

/** What is known of an object before its own rules are looked at. */
export interface Judge {
  id: string;
  index: number;
  identifier: Identifier;
  create: false | undefined;
  serviceIdField: string;
  /** Epoch milliseconds. */
  now: number;
  hasGroup: Caller['hasGroup'];
}

/**
 * Judges one object of one of the three arrays: storable values, identifier, shape, then the rules of its
 * kind. The validators are compiled here, once.
 *
 * @param serviceIdField wire name of the service id
 */
export function createAccept(serviceIdField: string) {
  const shapes = {
    attributes: compile(attributesSchema(serviceIdField)),
    events: compile(eventSchema(serviceIdField)),
    purchases: compile(purchaseSchema(serviceIdField)),
  };

  return function accept(kind: TrackKind, value: Json, index: number, caller: Caller): Verdict {
    const { now, hasGroup } = caller;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      return { error: `each element of '${kind}' must be an object` };
    }
    const unstorable = findUnstorable(value);
    if (unstorable) return { error: unstorable };
    if (kind === 'attributes' && value.push_token_import === true) {
      return judgeTokenImport(value, { id: newId(), index, serviceIdField, now, hasGroup });
    }
    const chosen = identifierOf(value, serviceIdField);
    if ('error' in chosen) return chosen;
    const { identifier } = chosen;
    if ('external_id' in identifier && caller.isBlocked(identifier.external_id)) return { error: BLOCKED };
    const shape = shapes[kind];
    if (!shape(value)) return { error: describeError(shape.errors![0]!) };
    const create = createsProfile(identifier, value._update_existing_only) ? undefined : false;
    const judge: Judge = { id: newId(), index, identifier, create, serviceIdField, now, hasGroup };
    if (kind === 'events') return judgeEvent(value, judge);
    if (kind === 'purchases') return judgePurchase(value, judge);
    return judgeAttributes(value, judge);
  };
}

/** Null, the empty string and absence all mean "none" in an optional field. */
export function isPresent(value: Json | undefined): boolean {
  return value !== undefined && value !== null && value !== '';
}
