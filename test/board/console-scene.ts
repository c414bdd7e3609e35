import { v7 as uuidv7 } from 'uuid';
import { pathWith } from '../../src/board/layout.ts';
import { newProfileId, toServiceId } from '../../src/profile/identifier.ts';
import { MASK } from '../../src/profile/masked.ts';
import { createApiKey } from '../../src/store/api-keys.ts';
import { addRefusedObjects, addRefusedRequests, type RefusedGroup } from '../../src/store/refused-objects.ts';
import { createIntegration } from '../setup/integrations.ts';
import { createVisitor } from './browser-session.ts';
import { commit, createInstallation, failedEvent, tester } from './installation.ts';
import { createPeople, DEFAULT_COMPANY, type Visitor } from './people.ts';

/** Headers of a browser request. */
export const html = { accept: 'text/html' };

/** Requests a page and returns its status, location and text. */
export async function page(visitor: Visitor, path: string) {
  const answer = await visitor.get(path, html);
  return { status: answer.status, text: await answer.text(), location: answer.headers.get('location') };
}

/** Submits the form of a page. */
export const post = (visitor: Visitor, path: string, fields: Record<string, string> = {}) =>
  visitor.send('POST', path, { body: new URLSearchParams(fields), headers: html });

/** A typical preference center: the user's name and address, a checkbox for a group, a button, and an external link. */
const pageOf = (group: string) =>
  `<h1>Hello {{\${first_name}}} of {{\${email_address}}}, {{custom_attribute.\${colour}}}</h1>
<form action="{{preference_center_submit_url}}" method="post">
<label><input type="checkbox" name="{% form_field_name :subscription_group ${group} %}" value="subscribed"
{% if subscribed_state.\${${group}} == 'subscribed' %}checked{% endif %}> News</label>
<button>Save</button></form>
<a id="away" href="https://elsewhere.example/">Away</a> <a id="here" href="/sign-out">Here</a>
<img src="https://elsewhere.example/pixel.png" alt="">
<script>document.title = 'run'; top.location = 'https://elsewhere.example/'</script>`;

/**
 * Opens a console with two workspaces of the default company, a user with all rights, and a profile and a sync to show.
 */
export async function openConsole(env: Record<string, string> = {}) {
  const installation = await createInstallation('postgres', { env });
  const board = await installation.startBoard();
  const operator = createVisitor(board);
  await operator.signIn();
  const { pool } = installation.database;
  const query = async (text: string, ...values: unknown[]) => (await pool.query(text, values)).rows;

  /** Creates a profile with all kinds of personal data. */
  async function createUser(
    workspaceId: string,
    externalId: string | null,
    email = `${uuidv7()}@gmail.com`,
  ): Promise<string> {
    const id = newProfileId(Date.now());
    await query(
      `insert into profiles (workspace_id, id, external_id, email, phone, phone_valid, first_name, last_name,
         custom_attributes, created_at, updated_at)
       values ($1, $2, $3, $4, '+14155552671', true, 'Ada', 'Lovelace', '{"colour": "teal"}', now(), now())`,
      ...[workspaceId, id, externalId, email],
    );
    return id;
  }

  /** Records a week of history with gaps, and a web process whose texts are `text`. */
  async function recordPast(text: string): Promise<void> {
    await query(
      `insert into fleet_history (minutes, at, looked_at, accepted, refused, dead_letters, applied, depth,
         oldest_seconds, workers, postgres_ms)
       select minutes, at, at, n * 600, n, 0, array[n * 300, n * 300, 0, 0], array[n, 0, 0, 0], array[1, 0, 0, 0], 2, 1
       from (values (1, 60), (15, 100), (60, 170)) as kinds (minutes, most)
       cross join lateral (
         select n, date_bin(make_interval(mins => minutes), now() - make_interval(mins => minutes * (most - n)), 'epoch') as at
         from generate_series(0, most) as n
         where n % 20 > 2
       ) as times
       on conflict do nothing`,
    );
    await query(
      `insert into processes (id, name, host, pid, version, lanes, missing, objects, objects_per_second,
         resident_bytes, loop_busy, marks, started_at, seen_at)
       values (gen_random_uuid(), 'web', $1, 7, '1.0.0', '{}', '{}', 10, 5, 90000000, 0.2, $2, now(), now())`,
      text,
      { [text]: { value: 1, mark: 2, unit: text, over: true } },
    );
  }

  /** Creates a waiting dead letter and returns its id. */
  const letterIn = async (workspaceId: string, change: Parameters<typeof failedEvent>[0] = {}) =>
    (await commit(installation.database, failedEvent({ workspaceId, ...change })))[0]!;

  /** Stores a request with two refused objects, like web does. Returns its id and the path of its cause. */
  async function refusedIn(workspaceId: string, change: Partial<RefusedGroup> = {}) {
    const requestId = uuidv7();
    const cause: RefusedGroup = {
      ...{ workspaceId, hour: new Date(), reason: 'required', field: 'name', operation: 'users.track' },
      ...{ inputArray: 'events', keyId: uuidv7(), objects: 2 },
      ...{ lastRequestId: requestId, sampleRequestId: requestId, sample: { external_id: MASK } },
      ...change,
    };
    const { reason, field, inputArray, operation, keyId } = cause;
    const objects = [3, 7].map((index) => ({ inputArray, index, reason, field }));
    await addRefusedRequests(pool, [
      { workspaceId, requestId, keyId, operation, accepted: 0, rejected: 2, objects },
    ]);
    await addRefusedObjects(pool, [cause]);
    const query = { workspace: workspaceId, reason, operation, array: inputArray, field, key: keyId };
    return { requestId, path: pathWith('/refused-objects/cause', query) };
  }

  const [shop, school] = [uuidv7(), uuidv7()];
  for (const [id, name] of [
    [shop, 'shop'],
    [school, 'school'],
  ])
    await query(
      'insert into workspaces (id, name, company_id) values ($1, $2, $3)',
      id,
      name,
      DEFAULT_COMPANY,
    );
  const user = toServiceId(await createUser(shop, 'user-1', 'ada@gmail.com'));
  const integration = await createIntegration(pool as never, shop, { name: 'contacts' });
  const run = uuidv7();
  await query(
    `insert into sync_jobs (id, integration_id, asked_by, status, finished_at, rows_read, rows_failed)
     values ($1, $2, 'operator', 'partial', now(), 2, 1)`,
    ...[run, integration],
  );
  await query(
    `insert into sync_row_errors (job_id, number, reason, identifier, payload, workspace_id)
     values ($1, 2, 'not JSON', '=user-9', '{"a":', $2)`,
    ...[run, shop],
  );
  const [group, center] = [uuidv7(), uuidv7()];
  await query(
    "insert into subscription_groups (id, workspace_id, name, channel) values ($1, $2, 'News', 'email')",
    ...[group, shop],
  );
  await query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     values ($1, $2, 'Choices', 'What we send', $3, '<p>Saved, {{\${first_name}}}</p>', 'active')`,
    ...[shop, center, pageOf(group)],
  );
  const { key } = await createApiKey(installation.database, tester, {
    ...{ workspaceId: shop, name: 'till', permissions: ['users.track'], ipAllowlist: [] },
  });
  const [segment, stream] = [uuidv7(), uuidv7()];
  await query(
    `insert into stream_destinations (workspace_id, id, name, kind, settings, position, failures, last_error, failed_at)
     values ($1, $2, 'crm', 'webhook', '{"url": "https://crm.example.com/in?token=4711"}', 0, 3, '503 Service Unavailable', now())`,
    ...[shop, stream],
  );
  await query(
    `insert into segments (id, workspace_id, name, purpose, definition)
     values ($1, $2, 'Teal', 'The letter', '{"custom_attribute": "colour", "equals": "teal"}')`,
    ...[segment, shop],
  );
  const requested = ['Teal-1', 'https://hooks.example/in?token=4711', '503 of the callback'];
  await query(
    `insert into segment_exports (workspace_id, id, segment_id, object_prefix, fields, output_format, callback,
       state, users, files, bytes, requested_at, ended_at, last_error)
     values ($1, $2, $3, $4, '{email}', 'zip', $5, 'ready', 12, 1, 3456, now(), now(), $6)`,
    ...[shop, uuidv7(), segment, ...requested],
  );
  return {
    ...{
      installation,
      board,
      operator,
      people: createPeople(installation, board),
      query,
      createUser,
      letterIn,
      refusedIn,
      recordPast,
    },
    ...{ shop, school, user, integration, run, key: key.id, group, center, segment, stream },
  };
}

export type Console = Awaited<ReturnType<typeof openConsole>>;
