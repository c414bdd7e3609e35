import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import type { Binaries } from '../../src/embedded/server.ts';
import type { Log } from '../../src/platform/log.ts';

/**
 * Starts a server on a port, as in production, so that a proxy can be placed before it. Its address omits
 * require_auth,
 * which the programs of Postgres before 16 do not know.
 */
export async function startPostgresOnPort(
  home: string,
  log: Log,
  binaries?: Binaries,
): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres(home, log, { binaries, transport: 'port' });
  return Object.defineProperty(server, 'url', { value: server.url.replace(/\?.*$/, '') });
}
