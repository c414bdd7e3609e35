import type pg from 'pg';
import { kindOf, type Span, tracing } from '../platform/tracing.ts';

// biome-ignore lint/suspicious/noExplicitAny: As `pg` has it: text or an object, values, a function.
type Query = (...given: any[]) => any;

/** Connections of transactions, and the spans that they are part of. */
const working = new WeakMap<object, Span>();

/** From now on the statements of a connection are part of this span, until it is said that they are of none. */
export function workFor(connection: object, span: Span | undefined): void {
  if (span) working.set(connection, span);
  else working.delete(connection);
}

/**
 * Makes a span of each statement of a connection that is sent as part of one that is recorded. What nobody asked for,
 * such as a heartbeat, has none. While nothing is traced the connection stays as it is.
 */
export function traceStatements(client: pg.Client): void {
  const sdk = tracing;
  if (!sdk) return;
  const query = client.query.bind(client) as Query;
  client.query = ((...given: unknown[]) => {
    const [statement] = given as [string | { name?: string; text?: string; submit?: unknown }];
    const parent = working.get(client) ?? sdk.recording();
    if (!parent || typeof (statement as { submit?: unknown })?.submit === 'function') return query(...given);
    const operation = nameOf(statement);
    const span = sdk.begin(operation, { kind: 'CLIENT', parent });
    span.setAttribute('db.system.name', 'postgresql').setAttribute('db.operation.name', operation);
    const end = (error: unknown) => {
      if (error) sdk.failSpan(span, kindOf(error));
      span.end();
    };
    const last = given.length - 1;
    const answer = given[last];
    if (typeof answer === 'function') {
      given[last] = (error: unknown, result: unknown) => {
        end(error);
        answer(error, result);
      };
      return query(...given);
    }
    return endWith(query(...given), end);
  }) as typeof client.query;
}

function endWith(answer: Promise<unknown>, end: (error: unknown) => void): Promise<unknown> {
  answer.then(() => end(undefined), end);
  return answer;
}

/**
 * Whoever waits for a connection of the pool goes on as part of its own span, not of that of who gave the connection back.
 */
export function bindConnects(pool: pg.Pool): void {
  const sdk = tracing;
  if (!sdk) return;
  const connect = pool.connect.bind(pool) as Query;
  pool.connect = ((done?: Query) => (done ? connect(sdk.bind(done)) : connect())) as typeof pool.connect;
}

/** Behind what may stand before it: spaces, comments, brackets. */
const FIRST_WORD = /^(?:\s|--[^\n]*\n|\/\*[^*]*\*\/|\()*([A-Za-z]+)/;

/** A prepared statement's own name; of any other its first word. Never a value, nor a text that may hold one. */
function nameOf(statement: string | { name?: string; text?: string }): string {
  if (typeof statement !== 'string' && statement.name) return statement.name;
  const text = typeof statement === 'string' ? statement : (statement.text ?? '');
  return FIRST_WORD.exec(text)?.[1]?.toLowerCase() ?? 'statement';
}
