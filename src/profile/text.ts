/**
 * Methods of strings as functions of the string.
 *
 * Strings are of many kinds in V8: flat, joined, cut out of another, the name of a member. Code that has met five of them
 * looks `text.charCodeAt` up anew for each call, which takes three times as long as a loop over characters does without. A
 * function that it knows beforehand it compiles into the loop, whatever the string.
 */
const asFunction = Function.prototype.call;

/** The UTF-16 unit at a place; NaN behind the end. */
export const codeAt = asFunction.bind(String.prototype.charCodeAt) as (text: string, place: number) => number;

/** Whether a text contains another. */
export const contains = asFunction.bind(String.prototype.includes) as (text: string, part: string) => boolean;

/** Whether a text has no half of a surrogate pair. */
export const isWellFormed = asFunction.bind(String.prototype.isWellFormed) as (text: string) => boolean;
