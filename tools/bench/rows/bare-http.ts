import path from 'node:path';
import { packageRoot } from '../../../src/platform/files.ts';
import { leasePort } from '../../../test/setup/ports.ts';
import { runLoad } from '../../load/run-load.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import { startProcess } from '../processes.ts';
import { CONNECTIONS_OF_1, type Size } from '../size.ts';

/** Measures a server that stores no data. The ratio of a whole pipeline to it shows the cost of the rest. */
export function bareHttpRow({ folder }: Environment, size: Size): BenchRow {
  async function measure(): Promise<Figure> {
    const port = await leasePort();
    const server = await startProcess(
      'bare-http',
      path.join(packageRoot, 'dist/tools/bench/bare-server.js'),
      { PORT: String(port) },
      { folder, readyUrl: `http://127.0.0.1:${port}/` },
    );
    try {
      const shape = { objects: 1, badShare: 0, connections: CONNECTIONS_OF_1, users: size.users, rate: 0 };
      const target = { host: '127.0.0.1', port };
      const load = { ...shape, target, key: 'none', probe: false, drainSeconds: 0 };
      await runLoad({ ...load, seconds: 0.5, maxRequests: Number.POSITIVE_INFINITY });
      const { tally, seconds } = await runLoad({
        ...load,
        seconds: size.seconds / 2,
        maxRequests: Number.POSITIVE_INFINITY,
      });
      return { value: tally.requests / seconds, unit: '/s', detail: { rows: tally.requests, seconds } };
    } finally {
      await server.stop();
    }
  }
  return {
    name: 'bare-http',
    what: 'a bare node:http server that parses the same bodies and answers: requests/s',
    measure,
  };
}
