import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Link, readLink, signLink } from '../../src/preferences/link.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createScene, openCenter, type Scene, tokenOf, withToken } from './scene.ts';

describe.each(eitherBackend)('the link to a preference center, with the queue in %s', (backend) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene(backend, { LOG_LEVEL: 'info' });
  });
  afterAll(() => scene?.stop());

  const open = (externalId: string) => openCenter(scene, externalId);

  /** Signs a link with the workspace's key. */
  async function sign(link: Link, workspaceId = link.workspaceId): Promise<string> {
    const { rows } = await scene.pool.query(
      'select secret from preference_link_keys where workspace_id = $1',
      [workspaceId],
    );
    return signLink(link, rows[0].secret);
  }

  async function expectNotice(url: string, status: number): Promise<void> {
    for (const method of ['GET', 'POST']) {
      const answer = await fetch(url, { method, ...(method === 'POST' && { body: new URLSearchParams() }) });
      const html = await answer.text();
      expect({ method, status: answer.status }).toEqual({ method, status });
      expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8');
      expect(html).toContain(status === 404 ? 'This link does not work' : 'This link is no longer valid');
      expect(html).not.toMatch(/example\.com|revoke|expire|sign/i);
    }
  }

  test('belongs to one user, and contains no readable data of the user', async () => {
    const { center, url } = await open('erin');
    await scene.addUser('frank', 'frank@example.com');
    const other = await scene.urlOf(center, 'frank');
    expect(other).not.toBe(url);
    const text = Buffer.from(tokenOf(url), 'base64url').toString('latin1');
    for (const personal of ['erin', 'example', center]) {
      expect(url).not.toContain(personal);
      expect(text).not.toContain(personal);
    }
  });

  test('is 404 when any character of it is changed', async () => {
    const { url } = await open('gina');
    const token = tokenOf(url);
    for (let position = 0; position < token.length; position += 7) {
      const changed =
        token.slice(0, position) + (token[position] === 'x' ? 'y' : 'x') + token.slice(position + 1);
      expect((await fetch(withToken(url, changed))).status).toBe(404);
    }
    for (const changed of ['', 'x', `${token}x`, '..%2f..%2fmetrics']) {
      if (changed) await expectNotice(withToken(url, changed), 404);
    }
  });

  test('cannot be forged for another user, center or workspace without its key: 404', async () => {
    const { url, center } = await open('hugo');
    const link = readLink(tokenOf(url))!;
    const other = await scene.otherWorkspace();
    await scene.addUser('hugo', 'hugo@example.org', { workspaceId: other.id });
    const theirs = await scene.addCenter('theirs', 'theirs', other.id);
    const foreign = readLink(tokenOf(await scene.urlOf(theirs, 'hugo', other.key)))!;
    // Signed with the wrong workspace's key.
    await expectNotice(withToken(url, await sign(link, other.id)), 404);
    await expectNotice(
      withToken(url, await sign({ ...link, workspaceId: other.id }, scene.workspace.id)),
      404,
    );
    // Signed correctly, but with ids of another workspace.
    await expectNotice(withToken(url, await sign({ ...link, centerId: theirs })), 404);
    await expectNotice(withToken(url, await sign({ ...link, profileId: foreign.profileId })), 410);
    await expectNotice(withToken(url, await sign({ ...foreign, centerId: center })), 404);
    expect((await fetch(withToken(url, await sign(link)))).status).toBe(200);
  });

  test('opens until it expires: 410', async () => {
    const { url } = await open('ines');
    const link = readLink(tokenOf(url))!;
    const days = (link.expiresAt - link.madeAt) / 86_400_000;
    expect(days).toBe(90);
    expect(Math.abs(link.madeAt - Date.now())).toBeLessThan(60_000);
    await expectNotice(withToken(url, await sign({ ...link, expiresAt: Date.now() - 1 })), 410);
    expect(
      (await fetch(withToken(url, await sign({ ...link, expiresAt: Date.now() + 60_000 })))).status,
    ).toBe(200);
  });

  test('is 410 once it is revoked, and later links open', async () => {
    const { url, center, profile } = await open('jane');
    const { center: second } = await open('kim');
    const revoke = (kind: string, id: string) =>
      scene.pool.query(
        `insert into preference_link_revocations values ($1, $2, $3, clock_timestamp())
         on conflict (workspace_id, subject_kind, subject_id) do update set revoked_at = excluded.revoked_at`,
        [scene.workspace.id, kind, id],
      );
    const elsewhere = await scene.urlOf(second, 'jane');
    const neighbour = await scene.urlOf(center, 'kim');
    await revoke('center', center);
    await expectNotice(url, 410);
    await expectNotice(neighbour, 410);
    expect((await fetch(elsewhere)).status).toBe(200);
    const later = await scene.urlOf(center, 'jane');
    expect((await fetch(later)).status).toBe(200);
    await revoke('user', profile);
    await expectNotice(later, 410);
    await expectNotice(elsewhere, 410);
    expect((await fetch(await scene.urlOf(center, 'kim'))).status).toBe(200);
    expect((await fetch(await scene.urlOf(center, 'jane'))).status).toBe(200);
  });

  test('follows its user through a merge, and is 410 after the user or the address is deleted', async () => {
    const { url, profile } = await open('liam');
    const kept = await scene.addUser('lena', 'lena@example.com');
    await scene.pool.query('delete from profiles where id = $1', [profile]);
    await expectNotice(url, 410);
    await scene.pool.query('insert into merged_profiles values ($1, $2, $3, now())', [
      scene.workspace.id,
      profile,
      kept,
    ]);
    expect((await fetch(url)).status).toBe(200);
    await scene.pool.query('update profiles set email = null where id = $1', [kept]);
    await expectNotice(url, 410);
  });

  test('is 404 for a draft', async () => {
    const { url, center } = await open('mia');
    await scene.pool.query("update preference_centers set state = 'draft' where id = $1", [center]);
    await expectNotice(url, 404);
  });

  test('opens on every web process, also on one that starts later', async () => {
    const { url } = await open('rosa');
    const { port } = await scene.fleet.startEdge();
    const answer = await fetch(url.replace(`:${scene.port}/`, `:${port}/`));
    expect(answer.status).toBe(200);
  });

  test('is absent from the log, as is personal data', async () => {
    const { url } = await open('sofia');
    const { headers } = await fetch(url);
    const id = headers.get('x-request-id');
    await waitUntil(() => scene.fleet.edges[0]!.log.find(({ request_id }) => request_id === id), {
      what: 'the log line',
    });
    const all = JSON.stringify(scene.fleet.edges[0]!.log);
    expect(all).not.toContain(tokenOf(url).slice(0, 40));
    expect(all).not.toMatch(/sofia|example\.com/);
  });
});
