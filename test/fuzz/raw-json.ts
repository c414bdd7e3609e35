/**
 * A piece of JSON text that no JavaScript value serializes to: `1e309`, a number of 100,000 digits, a
 * repeated key.
 */
export class RawJson {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** Shortened, because some texts are long and appear in messages. */
  toString(): string {
    return this.text.slice(0, 50);
  }
}

/** Writes a value as JSON. `RawJson` may occur anywhere in it. */
export function writeJson(value: unknown): string {
  if (value instanceof RawJson) return value.text;
  if (Array.isArray(value)) return `[${value.map(writeJson).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(
      ([name, member]) => `${JSON.stringify(name)}:${writeJson(member)}`,
    );
    return `{${members.join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}
