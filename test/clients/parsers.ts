import type { Json } from '../../src/profile/json.ts';

/** A refused answer, as a client receives it. */
export interface RefusedAnswer {
  status: number;
  header(name: string): string | null;
  /** The parsed JSON. */
  body: unknown;
}

/** The arrays of the request, by name. */
export type SentArrays = Record<string, Json[]>;

interface Entry {
  type: string;
  input_array?: string;
  index?: number;
}

type Body = { message?: unknown; errors?: unknown };

/**
 * How five clients of the protocol read a refused answer of an operation with an API key. Each parser makes the
 * assumptions of its client and throws where the client would. The text is our own.
 */
export const parsers: Record<string, (answer: RefusedAnswer, sent: SentArrays) => void> = {
  /**
   * The batch actions of `@segment/action-destinations` 3.497.0 look up the set of messages of the object at `index` of the
   * array that they sent, without a check.
   */
  'Segment batch action': ({ body }, sent) => {
    const { errors } = body as Body;
    if (!Array.isArray(errors)) return;
    const [objects = []] = Object.values(sent).filter(({ length }) => length > 0);
    const messages = objects.map(() => new Set<string>());
    for (const { type, index } of errors as Entry[]) messages[index!]!.add(type);
  },

  /** `braze-api` 2.13 makes an error of the message, the status and the list, whose entries are objects with a `type`. */
  'braze-api': ({ body }) => {
    const { message, errors } = body as Body;
    requireText(message);
    if (errors !== undefined) for (const { type } of errors as Entry[]) requireText(type);
  },

  /** The network handler of RudderStack correlates entries with jobs by `input_array` and `index`. */
  'rudder-transformer': ({ body }, sent) => {
    const { message, errors = [] } = body as Body;
    if (message === 'success') throw new Error('a refused answer says success');
    for (const { input_array: name, index } of errors as Entry[]) {
      if (sent[name!]![index!] === undefined) throw new Error(`no job sent ${name}[${index}]`);
    }
  },

  /** `braze-client` for Python reads the time of a retry from the header if it is 429, else the message. */
  'braze-client (Python)': ({ status, header, body }) => {
    if (status >= 500) return;
    if (status === 429) {
      const reset = Number(header('X-RateLimit-Reset') || Number.NaN);
      if (!(reset > 0)) throw new Error('X-RateLimit-Reset is not a time');
      return;
    }
    requireText((body as Body).message);
  },

  /** Typed clients, for example of PHP and Go, decode the body into a structure: text, and objects with typed members. */
  'typed structures': ({ body }) => {
    const { message, errors = [] } = body as Body;
    requireText(message);
    if (!Array.isArray(errors)) throw new Error('errors is not an array');
    for (const { type, input_array: name, index } of errors as Entry[]) {
      requireText(type);
      if (name !== undefined) requireText(name);
      if (index !== undefined && !Number.isInteger(index)) throw new Error('index is not an integer');
    }
  },
};

function requireText(value: unknown): void {
  if (typeof value !== 'string' || value === '') throw new Error(`${JSON.stringify(value)} is not a text`);
}
