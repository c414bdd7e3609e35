import type { AttributesDelta, StandardAttributes } from './attributes-delta.ts';
import type { Json } from './json.ts';

/**
 * Adds what one attribute of a fixed meaning changes to the delta; `now` is the time of acceptance in epoch
 * milliseconds. Returns the error that refuses the whole attribute object, or undefined.
 */
export type AttributeRule = (delta: AttributesDelta, value: Json, now: number) => string | undefined;

/** The standard attributes of a delta, which has some from now on. */
export function standardOf(delta: AttributesDelta): StandardAttributes {
  delta.standard ??= {};
  return delta.standard;
}
