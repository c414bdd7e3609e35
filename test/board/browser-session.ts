import type { Board } from '../../src/board/server.ts';
import { account, createInstallation, type Installation } from './installation.ts';

/** Creates a client that sends requests like a console page, with the headers that a browser adds. */
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

    /** The session cookie as name=value. */
    cookie: () => cookie,

    signOut: () => send('POST', '/sign-out'),
  };
}

export type Visitor = ReturnType<typeof createVisitor>;

/** Starts an installation with its console, and a signed-in user. */
export async function openDashboard(kind: Parameters<typeof createInstallation>[0]) {
  const installation: Installation = await createInstallation(kind);
  const board = await installation.startBoard();
  const visitor = createVisitor(board);
  await visitor.signIn();
  return { installation, visitor, board };
}
