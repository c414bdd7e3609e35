import { waitUntil } from './fixtures.ts';
import { startProcess, type TestProcess } from './processes.ts';

/** The line that `penstock dev --json` prints. */
export interface DevFacts {
  url: string;
  api_key: string;
  scim_token: string;
  scim_origin: string;
  console: string;
  console_user: string;
  console_password: string;
}

/** Starts `penstock dev` with these arguments. */
export const startDev = (words: string[], env: Record<string, string>): TestProcess =>
  startProcess('dist/src/cli.js', env, ['dev', ...words]);

/** Waits until it has printed its line. */
export async function devFacts(process: TestProcess): Promise<DevFacts> {
  const facts = await waitUntil(() => process.log.find((line) => 'api_key' in line), {
    what: 'the line of penstock dev',
    deadline: 60_000,
    explain: async () => JSON.stringify(process.log),
  });
  return facts as unknown as DevFacts;
}

/** Sends requests with the API key. */
export function devClient({ url, api_key }: DevFacts) {
  function send(target: string, body?: unknown, method = 'POST', headers: Record<string, string> = {}) {
    return fetch(`${url}${target}`, {
      method,
      headers: { Authorization: `Bearer ${api_key}`, 'Content-Type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  }

  return {
    send,
    /** Calls a control endpoint. */
    async control(target: string, body?: unknown, method = 'POST') {
      const response = await send(`/_dev${target}`, body, method);
      // biome-ignore lint/suspicious/noExplicitAny: an answer of any endpoint
      return { status: response.status, body: (await response.json()) as any };
    },
    async json(target: string, body?: unknown, method = 'POST') {
      const response = await send(target, body, method);
      // biome-ignore lint/suspicious/noExplicitAny: an answer of any endpoint
      return (await response.json()) as any;
    },
  };
}
