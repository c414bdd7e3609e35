import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Console, html, openConsole, page, post } from './console-scene.ts';
import { commitReplayed, failedEvent, read } from './installation.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

describe('dead letters', () => {
  test('dead letters are grouped by workspace, kind and reason, and 2,345 of them can be listed', async () => {
    const reason = `flood ${uuidv7()}`;
    await scene.query(
      `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason)
       select uuid_v7_floor(now() - n * interval '1 ms'), $1, 'r', 'purchases', 'j', '{}', $2
       from generate_series(1, 2345) as n`,
      ...[scene.school, reason],
    );
    await scene.letterIn(scene.school, { reason });
    const { text } = await page(scene.operator, `/dead-letters?workspace=${scene.school}`);
    const rows = text.split('<tr>').filter((row) => row.includes(reason));
    expect(rows).toHaveLength(2);
    expect(rows[0]).toMatch(/purchases.*2,345/s);
    expect(rows[1]).toMatch(/events.*>1</s);
    // With many groups, counting stops earlier for each of them. The page of a single group counts further.
    await scene.query(
      `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason)
       select gen_random_uuid(), $1, 'r', 'events', 'j', '{}', 'cause ' || n from generate_series(1, 8) as n`,
      scene.school,
    );
    const among = await page(scene.operator, `/dead-letters?workspace=${scene.school}`);
    expect(among.text.split('<tr>').find((row) => /purchases/.test(row))).toContain('more than 500');
    // Follow all pages of the group.
    let path: string | undefined = /href="([^"]+group=[^"]+)"/.exec(rows[0]!)![1]!.replaceAll('&amp;', '&');
    let deadLetters = 0;
    for (; path; ) {
      const group: string = (await page(scene.operator, path)).text;
      expect(group).toContain('2,345 waiting');
      deadLetters += [...group.matchAll(/name="id"/g)].length;
      path = /rel="next" href="([^"]+)"/.exec(group)?.[1]?.replaceAll('&amp;', '&');
    }
    expect(deadLetters).toBe(2345);
    await scene.query('delete from dead_letters where workspace_id = $1', scene.school);
  });

  describe('in 1,100 groups', () => {
    const MANY = 1100;
    const groupsOf = (text: string) =>
      [...text.matchAll(/href="([^"]+group=[^"]+)">([^<]*)</g)].map(([, path, reason]) => ({
        path: path!.replaceAll('&amp;', '&'),
        reason,
      }));
    const nextOf = (text: string) => /rel="next" href="([^"]+)"/.exec(text)?.[1]?.replaceAll('&amp;', '&');
    const list = (query: Record<string, string>) => `/dead-letters?${new URLSearchParams(query)}`;

    beforeAll(async () => {
      await scene.query(
        `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason)
         select uuid_v7_floor(now() - n * interval '1 ms'), $1, 'r', 'events', 'j', '{}', 'Unknown value ' || n
         from generate_series(1, ${MANY}) as n`,
        scene.school,
      );
      await scene.letterIn(scene.school, { kind: 'purchases', reason: 'zero price' });
      await scene.letterIn(scene.school, { reason: 'zulu' });
    });
    afterAll(() => scene.query('delete from dead_letters where workspace_id = $1', scene.school));

    test('each group is on exactly one page, and no URL contains a reason', async () => {
      await scene.letterIn(scene.shop, { reason: 'of the shop' });
      const seen: string[] = [];
      for (let path: string | undefined = '/dead-letters'; path !== undefined; ) {
        const { text } = await page(scene.operator, path);
        const groups = groupsOf(text);
        expect(groups.length).toBeLessThanOrEqual(100);
        seen.push(...groups.map(({ reason }) => reason!));
        path = nextOf(text);
        expect([path, ...groups.map((one) => one.path)].join()).not.toMatch(/unknown|value|zulu/i);
      }
      const ofSchool = [...Array(MANY)].map((_, index) => `Unknown value ${index + 1}`);
      expect(seen.filter((reason) => /^(Unknown|z)/.test(reason)).sort()).toEqual(
        [...ofSchool, 'zero price', 'zulu'].sort(),
      );
      expect(seen).toContain('of the shop');
      expect(new Set(seen).size).toBe(seen.length);
    });

    test('groups can be filtered by kind and by the start of the reason', async () => {
      const reasonsOf = async (query: Record<string, string>) => {
        const { text } = await page(scene.operator, list({ workspace: scene.school, ...query }));
        return { reasons: groupsOf(text).map(({ reason }) => reason), next: nextOf(text), text };
      };
      expect(await reasonsOf({ kind: 'purchases' })).toMatchObject({
        reasons: ['zero price'],
        next: undefined,
      });
      expect((await reasonsOf({ kind: 'nothing' })).text).toContain('has this kind and reason');
      const result = await reasonsOf({ reason: 'unknown VALUE 22', kind: 'events' });
      expect(result.reasons).toHaveLength(11);
      // More than a thousand groups come first, so the first page reports no result so far and can be continued.
      const first = await reasonsOf({ reason: 'zulu' });
      expect(first).toMatchObject({ reasons: [], text: expect.stringContaining('None so far') });
      const { text } = await page(scene.operator, first.next!);
      expect(groupsOf(text).map(({ reason }) => reason)).toEqual(['zulu']);
      expect((await page(scene.operator, list({ reason: 'x'.repeat(121) }))).status).toBe(400);
    });

    test('a viewer who may not see reasons cannot search by them', async () => {
      const { visitor } = await scene.people.arrive([], {
        appGroups: [{ workspace: scene.school, permissions: ['dev_console'], teams: [] }],
      });
      const { text } = await page(visitor, '/dead-letters');
      expect(groupsOf(text)).toHaveLength(100);
      expect(text).not.toMatch(/Unknown value|name="reason"/);
      expect((await page(visitor, list({ reason: 'zulu' }))).status).toBe(403);
      expect((await page(visitor, nextOf(text)!)).status).toBe(200);
    });

    test('a group whose dead letter failed again for another reason is not found any longer', async () => {
      const id = await scene.letterIn(scene.school, { reason: 'A first reason' });
      const shown = (await page(scene.operator, list({ workspace: scene.school, reason: 'a first' }))).text;
      const { path } = groupsOf(shown)[0]!;
      expect((await page(scene.operator, path)).text).toContain(id);
      await scene.query("update dead_letters set reason = 'zulu' where id = $1", id);
      expect((await page(scene.operator, path)).text).toContain('Reason not found');
      const group = new URL(path, 'http://x').searchParams.get('group')!;
      const form = { action: 'discard_group', workspace: scene.school, group, why: 'gone' };
      expect((await post(scene.operator, '/dead-letters', form)).status).toBe(400);
      expect((await page(scene.operator, list({ after: group }))).status).toBe(404);
      expect((await read(scene.installation.database, id)).state).toBe('waiting');
    });
  });

  test('discarded dead letters can be filtered by kind and are listed in pages', async () => {
    await scene.query(
      `insert into dead_letters (id, workspace_id, request_id, kind, job_name, object, reason, state)
       select uuid_v7_floor(now() - n * interval '1 ms'), $1, 'r', case n % 2 when 0 then 'events' else 'purchases' end,
         'j', '{}', 'reason', 'discarded' from generate_series(1, 130) as n`,
      scene.school,
    );
    let path: string | undefined = `/dead-letters?workspace=${scene.school}&state=discarded&kind=purchases`;
    let [deadLetterRows, pages] = [0, 0];
    for (; path; pages++) {
      const { text } = await page(scene.operator, path);
      deadLetterRows += [...text.matchAll(/<code>purchases<\/code>/g)].length;
      expect(text).not.toContain('<code>events</code>');
      path = /rel="next" href="([^"]+)"/.exec(text)?.[1]?.replaceAll('&amp;', '&');
    }
    expect([deadLetterRows, pages]).toEqual([65, 2]);
    await scene.query('delete from dead_letters where workspace_id = $1', scene.school);
  });

  test('several selected dead letters are replayed, each once', async () => {
    const chosen = [await scene.letterIn(scene.shop), await scene.letterIn(scene.shop)];
    const other = await scene.letterIn(scene.shop);
    const body = new URLSearchParams({ action: 'replay', workspace: scene.shop });
    for (const id of chosen) body.append('id', id);
    const answer = await scene.operator.send('POST', '/dead-letters', { body, headers: html });
    expect(answer.headers.get('location')).toContain('done=replayed');
    for (const id of chosen) expect((await read(scene.installation.database, id)).state).toBe('replaying');
    expect((await read(scene.installation.database, other)).state).toBe('waiting');
    const envelopes = await scene.installation.envelopes();
    const inLanes = envelopes.flatMap(({ envelope }) =>
      envelope.objects.map((object: { id?: string }) => object?.id),
    );
    expect(chosen.map((id) => inLanes.filter((one) => one === id).length)).toEqual([1, 1]);
  });

  test('dead letters of another workspace cannot be changed, whatever the form contains', async () => {
    const { visitor } = await scene.people.arrive([], {
      appGroups: [{ workspace: scene.shop, permissions: ['admin'], teams: [] }],
    });
    const id = await scene.letterIn(scene.school);
    for (const action of ['replay', 'discard']) {
      const answer = await post(visitor, '/dead-letters', { action, workspace: scene.shop, id, why: 'mine' });
      expect(answer.status).toBe(400);
      expect(
        (await post(visitor, '/dead-letters', { action, workspace: scene.school, id, why: 'x' })).status,
      ).toBe(403);
      expect((await post(visitor, `/dead-letters/${id}`, { action, why: 'x' })).status).toBe(404);
    }
    expect((await read(scene.installation.database, id)).state).toBe('waiting');
  });

  test('a dead letter is discarded with a reason, is kept, and cannot be replayed', async () => {
    const id = await scene.letterIn(scene.shop);
    expect((await post(scene.operator, `/dead-letters/${id}`, { action: 'discard', why: ' ' })).status).toBe(
      400,
    );
    await post(scene.operator, `/dead-letters/${id}`, { action: 'discard', why: 'a <test> of the shop' });
    expect((await read(scene.installation.database, id)).state).toBe('discarded');
    const listed = (await page(scene.operator, '/dead-letters?state=discarded')).text;
    expect(listed).toContain(id);
    expect(listed).toContain('a &lt;test&gt; of the shop');
    for (const action of ['replay', 'discard'])
      expect(
        (await post(scene.operator, `/dead-letters/${id}`, { action, why: 'again' })).headers.get('location'),
      ).toContain('done=nothing');
    expect((await read(scene.installation.database, id)).state).toBe('discarded');
    expect(
      (await scene.installation.envelopes()).filter(({ envelope }) => envelope.objects[0]?.id === id),
    ).toEqual([]);
  });

  test('a group keeps the selection and the reason if the reason is too long, and shows the rule', async () => {
    const reason = `group ${uuidv7()}`;
    const ids = [
      await scene.letterIn(scene.school, { reason }),
      await scene.letterIn(scene.school, { reason }),
    ];
    const { text } = await page(scene.operator, `/dead-letters?workspace=${scene.school}`);
    const group = /group=([^"]+)"/.exec(text.split('<tr>').find((row) => row.includes(reason))!)![1]!;
    const fields = {
      action: 'discard',
      workspace: scene.school,
      group: decodeURIComponent(group),
      id: ids[0]!,
    };
    const long = await post(scene.operator, '/dead-letters', { ...fields, why: 'x'.repeat(501) });
    expect(long.status).toBe(400);
    const shown = await long.text();
    expect(shown).toContain(`value="${ids[0]}" checked`);
    expect(shown).not.toContain(`value="${ids[1]}" checked`);
    expect(shown).toMatch(/name="why" value="x{501}"[^>]*aria-invalid="true"/);
    expect(shown).toContain('A reason must have 1 to 500 characters.');
    const none = await post(scene.operator, '/dead-letters', { ...fields, id: '', why: 'not selected' });
    expect(none.status).toBe(400);
    expect(await none.text()).toMatch(/Select at least one dead letter.*value="not selected"/s);
    await post(scene.operator, '/dead-letters', { ...fields, why: 'a test' });
    expect((await read(scene.installation.database, ids[0]!)).state).toBe('discarded');
  });

  test('a dead letter shows an empty reason as an error at its field', async () => {
    const id = await scene.letterIn(scene.shop);
    const reply = await post(scene.operator, `/dead-letters/${id}`, { action: 'discard', why: ' ' });
    expect(reply.status).toBe(400);
    expect(await reply.text()).toMatch(/name="why"[^>]*aria-invalid="true".*Reason to discard is required/s);
  });

  test('a corrected dead letter is replayed, and its original and both users are kept', async () => {
    const id = await scene.letterIn(scene.shop);
    const mended = { ...failedEvent().object, identifier: { external_id: 'somebody else' }, name: 'mended' };
    const fix = (object: string) => post(scene.operator, `/dead-letters/${id}`, { action: 'mend', object });
    for (const [text, problem] of [
      ['{"kind":', 'not valid JSON'],
      ['[]', 'must be a JSON object'],
      ['{"kind":"purchases"}', '&#39;kind&#39; must stay &#39;events&#39;'],
      [JSON.stringify({ ...mended, time: undefined }), '&#39;time&#39; is required'],
      [`{"kind":"events","pad":"${'x'.repeat(1_048_577)}"}`, 'must have at most'],
    ] as const) {
      const answer = await fix(text);
      expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining(problem)]);
    }
    expect((await fix(JSON.stringify(mended))).headers.get('location')).toContain('done=mended');
    expect(await read(scene.installation.database, id)).toMatchObject({
      state: 'replaying',
      object: { name: 'mended' },
    });
    const [row] = await scene.query(
      'select original_object, identifiers, mended_by from dead_letters where id = $1',
      id,
    );
    expect(row).toMatchObject({ original_object: { name: 'ordered' }, mended_by: 'admin' });
    expect(row.identifiers).toEqual(expect.arrayContaining([`x:user-${id}`, 'x:somebody else']));
    const inLanes = (await scene.installation.envelopes()).filter(
      ({ envelope }) => envelope.objects[0]?.id === id,
    );
    expect(inLanes).toMatchObject([{ envelope: { replay: true, objects: [{ name: 'mended' }] } }]);
  });
});

describe('the page of a dead letter during a replay', () => {
  const startReplay = async () => {
    const reason = "'time' is not a time";
    const id = await scene.letterIn(scene.shop, { reason });
    const answer = await post(scene.operator, `/dead-letters/${id}`, { action: 'replay' });
    return { id, path: answer.headers.get('location')! };
  };
  const textOf = async (path: string) => (await page(scene.operator, path)).text;

  test('refreshes, calls the reason the earlier one and has no button that replays', async () => {
    const { path } = await startReplay();
    const text = await textOf(path);
    expect(text).toContain('data-refresh="2"');
    expect(text).toMatch(/Enqueued again\. The object is being replayed since <time/);
    expect(text).toContain('Earlier reason: &#39;time&#39; is not a time');
    expect(text).not.toContain('value="replay"');
  });

  test('stops the refresh after 20 s and names the command that enqueues the object again', async () => {
    const { id, path } = await startReplay();
    await scene.query("update audit set at = now() - interval '21 seconds' where subject_id = $1", id);
    const text = await textOf(path);
    expect(text).not.toContain('data-refresh');
    expect(text).toContain(`penstock dead-letters replay ${id}`);
  });

  test('reports that the object was applied', async () => {
    const { id, path } = await startReplay();
    await commitReplayed(scene.installation.database, [id]);
    const text = await textOf(path);
    expect(text).toContain('Replayed. The object was applied.');
    expect(text).not.toMatch(/Enqueued again|data-refresh/);
  });

  test('reports that the replay failed again, with the new reason', async () => {
    const { id, path } = await startReplay();
    await scene.query(
      "update dead_letters set state = 'waiting', reason = 'no such group' where id = $1",
      id,
    );
    const text = await textOf(path);
    expect(text).toContain('The replay failed again.');
    expect(text).toContain('<p class="lead wrap">no such group</p>');
    expect(text).toContain('value="replay"');
    expect(text).not.toMatch(/Enqueued again|data-refresh/);
  });
});

test('the reason of a group is cut after a word, and its title has the whole reason', async () => {
  const reason = `${'A name or text of this object must not be empty, and '.repeat(3)}end`;
  await scene.letterIn(scene.shop, { reason });
  const shown = /<span title="([^"]+)">([^<]+)<\/span>/g;
  const groups = (await page(scene.operator, `/dead-letters?workspace=${scene.shop}&kind=events`)).text;
  const row = groups.split('<tr>').find((one) => one.includes('A name or text'))!;
  const cut = [reason, `${reason.slice(0, 115)}…`];
  expect([...row.matchAll(shown)].map(([, ...texts]) => texts)).toEqual([cut]);
  const path = /href="([^"]+)"/.exec(row)![1]!.replaceAll('&amp;', '&');
  const heading = /<h2 class="wrap">.*?<\/h2>/.exec((await page(scene.operator, path)).text)![0];
  expect([...heading.matchAll(shown)].map(([, ...texts]) => texts)).toEqual([cut]);
});

describe('a failed object', () => {
  test('is listed with its user, its invalid value and its time', async () => {
    const reason = "'time' lies before 1970, in the list";
    await scene.letterIn(scene.school, { reason });
    const groups = (await page(scene.operator, `/dead-letters?workspace=${scene.school}`)).text;
    const path = /href="([^"]+)">&#39;time&#39; lies before/.exec(groups)![1]!.replaceAll('&amp;', '&');
    const { text } = await page(scene.operator, path);
    expect(text).toMatch(/\/users\?workspace=[^"]+&amp;q=user-[^"]+">user-/);
    expect(text).toContain('<code>time</code>');
    expect(text).toContain('2026-01-02 03:04:05 UTC');
    expect(text.indexOf('Replay selected')).toBeLessThan(text.indexOf('<tbody>'));
  });

  test.each([
    ['of 30 KB', { pad: 'x'.repeat(30_000) }],
    ['with 1,000 members', Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`member_${n}`, n]))],
  ])('%s is listed with its user, its name and its time', async (_, members) => {
    const reason = `a large object ${uuidv7()}`;
    await scene.letterIn(scene.school, { reason, object: { ...members, ...failedEvent().object } });
    const groups = (await page(scene.operator, `/dead-letters?workspace=${scene.school}`)).text;
    const path = new RegExp(`href="([^"]+)">${reason}`).exec(groups)![1]!.replaceAll('&amp;', '&');
    const { text } = await page(scene.operator, path);
    expect(text).toMatch(/\/users\?workspace=[^"]+&amp;q=user-[^"]+">user-/);
    expect(text).toContain('<code>name</code>');
    expect(text).toContain('2026-01-02 03:04:05 UTC');
  });

  test('is corrected by its invalid field, and the other fields keep their types', async () => {
    const object = {
      ...failedEvent().object,
      properties: { size: 7, sent: true, order: '0e123 "\\" 12345678901234567890' },
    };
    const id = await scene.letterIn(scene.shop, { reason: "'name' is unknown", object });
    const { text } = await page(scene.operator, `/dead-letters/${id}`);
    const [first, ...others] = [...text.matchAll(/name="set\.([^"]+)"/g)].map(([, name]) => name);
    expect(first).toBe('name');
    expect(others).toEqual(expect.arrayContaining(['time', 'identifier.external_id', 'properties.size']));
    expect(others).not.toContain('id');
    const answer = await post(scene.operator, `/dead-letters/${id}`, {
      ...{ action: 'mend_fields', 'set.name': 'bought', 'set.properties.size': '8' },
      'set.properties.sent': 'false',
    });
    expect(answer.headers.get('location')).toContain('done=mended');
    expect(await read(scene.installation.database, id)).toMatchObject({
      state: 'replaying',
      object: { ...object, name: 'bought', properties: { ...object.properties, size: 8, sent: false } },
    });
  });
});

describe('syncs', () => {
  const act = (action: string) => post(scene.operator, `/syncs/${scene.integration}`, { action });

  test('finished runs are drawn and described in words, and a running one shows its progress', async () => {
    expect((await act('sync')).status).toBe(303);
    await scene.query(
      `update sync_jobs
       set rows_read = 7, rows_synced = 5, rows_failed = 2, started_at = now() - interval '12 seconds'
       where finished_at is null`,
    );
    const { text } = await page(scene.operator, `/syncs/${scene.integration}`);
    expect(text).toMatch(/role="status">Running for 1\d s: 7 rows read, 5 synced, 2 failed; 1 rows\/s/);
    expect(text).toContain('data-refresh="3"');
    expect(text).toMatch(/aria-label="Duration of the runs\. 1 bar, the latest 2\d{3}-/);
    expect(text).toMatch(/aria-label="Rows of the runs\. 1 bar, the latest [^"]+ UTC: 0 synced, 1 failed;/);
    await scene.query('delete from sync_jobs where finished_at is null');
  });

  test('a sync can be started, cancelled, paused and resumed', async () => {
    expect((await act('sync')).headers.get('location')).toContain('done=sync');
    expect((await act('sync')).status).toBe(409);
    expect((await page(scene.operator, `/syncs/${scene.integration}`)).text).toContain('Cancel run');
    expect((await act('cancel')).headers.get('location')).toContain('done=cancel');
    expect((await act('pause')).headers.get('location')).toContain('done=pause');
    expect(await scene.query('select status from integrations where id = $1', scene.integration)).toEqual([
      { status: 'paused' },
    ]);
    await scene.query('update sync_jobs set finished_at = now() where finished_at is null');
    expect((await act('sync')).status).toBe(409);
    expect((await act('resume')).headers.get('location')).toContain('done=resume');
    expect(await scene.query('select status from integrations where id = $1', scene.integration)).toEqual([
      { status: 'active' },
    ]);
  });

  test('an identifier of a failed row links to its user', async () => {
    await scene.createUser(scene.shop, 'row-user', 'row-user@gmail.com');
    await scene.query(
      `insert into sync_row_errors (job_id, number, reason, identifier, identifiers, workspace_id)
       values ($1, 3, 'not valid', 'EXTERNAL_ID=row-user', '{x:row-user}', $2),
         ($1, 4, 'not valid', 'ALIAS_NAME=naïve, ALIAS_LABEL=café', '{a:5:cafénaïve}', $2)`,
      ...[scene.run, scene.shop],
    );
    const path = `/syncs/${scene.integration}/runs/${scene.run}`;
    const { text } = await page(scene.operator, path);
    const [link] = /\/users\?q=row-user&amp;workspace=[\w-]+/.exec(text)!;
    expect((await page(scene.operator, link.replace('&amp;', '&'))).text).toContain('row-user@gmail.com');
    expect(text).toContain(`/users?q=na%C3%AFve&amp;workspace=${scene.shop}`);
    const permissions = ['manage_external_integrations', 'view_pii'];
    const appGroups = [{ workspace: scene.shop, permissions, teams: [] }];
    const { visitor } = await scene.people.arrive([], { appGroups });
    expect((await page(visitor, path)).text).toMatch(/EXTERNAL_ID=row-user(?!.*\/users\?q=)/s);
    await scene.query('delete from sync_row_errors where number > 2');
  });

  test('failed rows can be downloaded with their reasons', async () => {
    const answer = await scene.operator.get(`/syncs/${scene.integration}/runs/${scene.run}/rows.csv`, html);
    expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(await answer.text()).toBe(
      `row,outcome,updated_at,identifier,reason,payload\r\n2,failed,,'=user-9,not JSON,"{""a"":"\r\n`,
    );
  });
});

describe('the health page', () => {
  test('the health page reports a missing process as critical', async () => {
    const { text } = await page(scene.operator, '/');
    expect(text).toMatch(
      /<li class="finding verdict bad"><p><span class="severity">critical<\/span> <strong>No (?:web|worker) is running/,
    );
  });

  test('console pages are not cached, load nothing from other hosts, and run no inline script', async () => {
    for (const path of ['/', '/users', '/sign-in', '/nowhere']) {
      const answer = await scene.operator.get(path, html);
      const policy = answer.headers.get('content-security-policy')!;
      expect(policy).toMatch(/^default-src 'none';script-src 'self';style-src 'self';connect-src 'self';/);
      expect(policy).not.toContain('unsafe');
      const text = await answer.text();
      expect(text).not.toMatch(/<script>|<style|style="| on\w+="|https?:/);
    }
    expect((await scene.operator.get('/', html)).headers.get('cache-control')).toBe('no-store');
  });
});
