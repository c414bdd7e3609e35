import type { Board } from '../../src/board/server.ts';
import { account } from './installation.ts';

/** Requests as the dashboard's page makes them, with the headers that a browser adds by itself. */
export function createVisitor({ url }: Pick<Board, 'url'>) {
  let cookie = '';

  async function send(method: string, path: string, init: RequestInit = {}): Promise<Response> {
    const headers: Record<string, string> = {
      accept: 'application/json',
      'sec-fetch-site': 'same-origin',
      cookie,
    };
    if (method !== 'GET') headers.origin = url;
    const { headers: own, ...rest } = init;
    return fetch(url + path, {
      method,
      redirect: 'manual',
      ...rest,
      headers: { ...headers, ...(own as object) },
    });
  }

  return {
    send,
    get: (path: string, headers: Record<string, string> = {}) => send('GET', path, { headers }),
    put: (path: string, headers: Record<string, string> = {}) => send('PUT', path, { headers }),

    async signIn(user = account.user, password = account.password): Promise<Response> {
      const response = await send('POST', '/sign-in', { body: new URLSearchParams({ user, password }) });
      const [set] = response.headers.getSetCookie();
      if (set) cookie = set.split(';')[0]!;
      return response;
    },

    signOut: () => send('POST', '/sign-out'),
  };
}
