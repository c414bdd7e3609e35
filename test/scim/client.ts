import { request } from 'undici';

/** A SCIM resource. */
export interface Resource {
  id: string;
  userName: string;
  meta: { version: string; location: string };
  [attribute: string]: unknown;
}

interface Listed {
  totalResults: number;
  startIndex: number;
  itemsPerPage: number;
  Resources: Resource[];
}

/**
 * A client of SCIM 2.0 that implements only RFC 7644, without knowledge of this service: it finds the
 * endpoint of users through
 * /ResourceTypes, follows Location, sends versions as If-Match and pages by startIndex.
 */
export async function discoverClient(root: string, headers: Record<string, string>) {
  async function send(method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string, body?: object, own = {}) {
    const answer = await request(url, {
      method,
      headers: {
        accept: 'application/scim+json',
        ...(body && { 'content-type': 'application/scim+json' }),
        ...headers,
        ...own,
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    if (answer.statusCode >= 400) throw new Error(`${method} ${url}: ${answer.statusCode} ${text}`);
    return { headers: answer.headers, body: text === '' ? undefined : JSON.parse(text) };
  }

  const types = (await send('GET', `${root}/ResourceTypes`)).body.Resources as Record<string, string>[];
  const { endpoint, schema } = types.find(({ name }) => name === 'User')!;
  const { filter } = (await send('GET', `${root}/ServiceProviderConfig`)).body;
  const users = `${root}${endpoint}`;

  return {
    async create(attributes: object): Promise<Resource> {
      const made = await send('POST', users, { schemas: [schema], ...attributes });
      return (await send('GET', String(made.headers.location))).body;
    },

    async patch({ meta }: Resource, Operations: object[]): Promise<Resource> {
      const schemas = ['urn:ietf:params:scim:api:messages:2.0:PatchOp'];
      const ifMatch = { 'if-match': meta.version };
      return (await send('PATCH', meta.location, { schemas, Operations }, ifMatch)).body;
    },

    /** Lists every user, page by page. */
    async *list(count: number): AsyncGenerator<Resource[]> {
      for (let startIndex = 1; ; ) {
        const query = new URLSearchParams({
          startIndex: String(startIndex),
          count: String(Math.min(count, filter.maxResults)),
        });
        const page = (await send('GET', `${users}?${query}`)).body as Listed;
        yield page.Resources;
        startIndex += page.itemsPerPage;
        if (startIndex > page.totalResults) return;
      }
    },

    async remove({ meta }: Resource): Promise<void> {
      await send('DELETE', meta.location, undefined, { 'if-match': meta.version });
    },
  };
}
