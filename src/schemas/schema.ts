/** A JSON Schema (2020-12) literal. */
export type Schema = Readonly<Record<string, unknown>>;
