import pg from 'pg';

/**
 * Thrown if the server does not complete SCRAM authentication. Until then it has received only the names of
 * the role and the database.
 */
class UnprovenServer extends Error {
  readonly code = 'UNPROVEN_SERVER';
}

/**
 * Parameter of the connection URL with the same name and meaning as in libpq:
 * https://www.postgresql.org/docs/current/libpq-connect.html
 */
const REQUIRE_SCRAM = /[?&]require_auth=scram-sha-256(&|$)/;

/**
 * Adds `require_auth=scram-sha-256` to a connection URL, so that the server has to prove that it knows the
 * password.
 */
export function withRequiredScram(url: string): string {
  if (REQUIRE_SCRAM.test(url)) return url;
  return `${url}${url.includes('?') ? '&' : '?'}require_auth=scram-sha-256`;
}

/** Returns whether a connection URL requires SCRAM. */
export function requiresScram(url: string): boolean {
  return REQUIRE_SCRAM.test(url);
}

/** Messages that a server may send before its proof. `pg` itself checks that the first three follow SCRAM. */
const BEFORE_PROOF: ReadonlySet<string | symbol> = new Set([
  'authenticationSASL',
  'authenticationSASLContinue',
  'authenticationSASLFinal',
  'errorMessage',
  'notice',
  // Events of the connection itself.
  ...['connect', 'sslconnect', 'error', 'end', 'message', 'newListener'],
]);

/** Requests for the password, which `pg` would answer at any time. None may follow the proof. */
const PASSWORD_REQUESTS: ReadonlySet<string | symbol> = new Set([
  'authenticationCleartextPassword',
  'authenticationMD5Password',
  'authenticationSASL',
]);

/** TLS settings, as `pg` reads them from the options and the URL of a client. */
interface TlsSettings {
  ssl: unknown;
  sslNegotiation?: string;
}

/**
 * A connection of `pg` that passes on no message of the server before the server has proved by SCRAM that it knows the
 * password, except those that lead to the proof. A server that sends anything else, or asks for the password after its proof, is
 * disconnected.
 */
export class ScramConnection extends pg.Connection {
  declare ssl: unknown;
  declare sslNegotiation: string | undefined;
  #proved = false;
  #refused = false;

  /** Takes over the TLS settings of the client that owns the connection. Call it before the client connects. */
  useTls({ ssl, sslNegotiation }: TlsSettings): void {
    this.ssl = ssl;
    this.sslNegotiation = sslNegotiation;
  }

  override emit(event: string | symbol, ...args: unknown[]): boolean {
    if (this.#refused && event !== 'end') return false;
    if (this.#proved ? PASSWORD_REQUESTS.has(event) : !BEFORE_PROOF.has(event)) {
      this.#refused = true;
      this.stream.destroy();
      return super.emit('error', new UnprovenServer('the server does not prove that it knows the password'));
    }
    const handled = super.emit(event, ...args);
    // `pg` verifies the server's signature while it handles this event, and emits an error if it is wrong.
    if (event === 'authenticationSASLFinal' && !this.#refused) this.#proved = true;
    // After any error before the proof, the connection must not send anything else.
    if (event === 'error' && !this.#proved) {
      this.#refused = true;
      this.stream.destroy();
    }
    return handled;
  }
}
