import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { startProxy } from '../setup/proxy.ts';

/** Opens a database directly, and through a proxy with a timeout of 1.5 s. */
export async function openProxiedStore() {
  const { url } = await createDatabase();
  const database = openDatabase(url, 2);
  const proxy = await startProxy(url);
  const proxied = openDatabase(proxy.url, 2, { patience: { connection: 1000, statement: 1500 } });
  return {
    database,
    proxied,
    proxy,
    async stop() {
      await proxy.comeBack();
      await Promise.all([database.stop(), proxied.stop()]);
    },
  };
}
