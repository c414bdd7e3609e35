import { v7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createVisitor } from './browser-session.ts';
import { createInstallation, type Installation } from './installation.ts';

/** Texts that Postgres cannot store, percent-encoded: U+0000, and bytes that are not UTF-8. */
const UNSTORABLE = ['n1@x.yy%00', '%00', 'a%00b', '%ff%fe'];

/** Pages of the console that take text in their query. */
const PAGES = [
  ...['/users?q=', '/users?workspace=', '/requests?id=', '/requests/', '/users/', '/dead-letters?workspace='],
  ...['/dead-letters?group=', '/dead-letters?after=', '/audit?actor=', '/audit?subject=', '/audit?company='],
  ...[
    '/accounts?email=',
    '/accounts?company=',
    '/groups?user=',
    '/groups?before=',
    '/preference-centers?workspace=',
  ],
  ...[
    '/segments?workspace=',
    '/segments/',
    '/keys?workspace=',
    '/workspaces?name=',
    '/permission-sets?company=',
  ],
  ...['/syncs?workspace=', '/syncs/', '/streams?workspace=', '/exports?workspace=', '/sessions?after='],
  ...['/queues/api/queues?activeQueue=', '/invitation?token=', '/sign-in?password=', '/assets/'],
];

describe('text that Postgres cannot store', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await createInstallation('postgres');
    await installation.database.pool.query('insert into workspaces (id, name) values ($1, $2)', [
      v7(),
      'shop',
    ]);
  });
  afterAll(() => installation.stop());

  test('a user name with such text is a wrong user, counted as a failed attempt', async () => {
    const visitor = createVisitor(await installation.startBoard());
    const signIn = () =>
      visitor.send('POST', '/sign-in', {
        body: new URLSearchParams('user=n1@x.yy%00&password=wrong%00'),
      });
    const statuses: number[] = [];
    for (let attempt = 0; attempt < 6; attempt++) statuses.push((await signIn()).status);
    expect(statuses).toEqual([401, 401, 401, 401, 401, 429]);
  });

  test('a token with such text is an invalid invitation', async () => {
    const visitor = createVisitor(await installation.startBoard());
    const answer = await visitor.send('POST', '/invitation', {
      body: new URLSearchParams('token=%00&password=a%00&again=a%00'),
    });
    expect(answer.status).toBe(410);
  });

  test.each(UNSTORABLE)(
    '%s causes no server error on any page, in the query or in the path',
    async (text) => {
      const visitor = createVisitor(await installation.startBoard());
      await visitor.signIn();
      const failed: [string, number][] = [];
      for (const path of PAGES) {
        const { status } = await visitor.get(`${path}${text}`, { accept: 'text/html' });
        if (status >= 500) failed.push([path, status]);
      }
      expect(failed).toEqual([]);
    },
  );
});
