import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import type { Binaries } from '../../src/embedded/server.ts';
import type { Log } from '../../src/platform/log.ts';

/**
 * A server on a port, as those of production are: proxies can stand in front of it. Its address asks for no proof, a
 * word that the programs of a Postgres before 16 do not know.
 */
export async function startPostgresOnPort(
  home: string,
  log: Log,
  binaries?: Binaries,
): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres(home, log, { binaries, transport: 'port' });
  return Object.defineProperty(server, 'url', { value: server.url.replace(/\?.*$/, '') });
}
