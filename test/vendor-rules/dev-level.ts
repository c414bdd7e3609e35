import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { startProcess, type TestProcess } from '../setup/processes.ts';

/** An answer of a server at one level. */
export interface Answer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: an answer of any endpoint
  body: any;
}

export interface Api {
  /** Sends a request with the key of the server; a request without a body is a GET. */
  send(target: string, body?: object, headers?: Record<string, string>): Promise<Answer>;
  /** Reads back the user with an external id; undefined: no user has it. */
  user(externalId: string): Promise<Record<string, unknown> | undefined>;
  /** Wire name of the service id. */
  serviceId: string;
}

export interface DevLevel {
  api: Api;
  stop(): Promise<void>;
}

/** The template of the database is created once and copied by each start. */
const cache = temporaryFolder('penstock-dev-cache-');

/** Starts `penstock dev` at one level: effects are visible when a response arrives. */
export async function startDevLevel(level: 'spec' | 'current'): Promise<DevLevel> {
  const env = {
    XDG_CACHE_HOME: cache,
    TMPDIR: temporaryFolder('penstock-dev-tmp-'),
    VENDOR_RULES: level,
  };
  const process = startProcess('dist/src/cli.js', env, ['dev', '--port', '0', '--json']);
  const facts = await waitUntil(() => process.log.find((line) => 'api_key' in line), {
    what: 'the line of penstock dev',
    deadline: 60_000,
    explain: async () => JSON.stringify(process.log),
  });
  return { api: apiOf(facts, level), stop: () => end(process) };
}

async function end(process: TestProcess): Promise<void> {
  process.kill('SIGTERM');
  await process.exit;
}

function apiOf({ url, api_key }: Record<string, unknown>, level: 'spec' | 'current'): Api {
  async function send(target: string, body?: object, headers: Record<string, string> = {}): Promise<Answer> {
    const response = await fetch(`${url}${target}`, {
      method: body ? 'POST' : 'GET',
      headers: { Authorization: `Bearer ${api_key}`, 'Content-Type': 'application/json', ...headers },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, headers: response.headers, body: await response.json() };
  }
  return {
    send,
    async user(externalId) {
      const { body } = await send('/users/export/ids', { external_ids: [externalId] });
      return body.users[0];
    },
    serviceId: level === 'spec' ? 'service_id' : 'braze_id',
  };
}
