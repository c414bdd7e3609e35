import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { newProfileId } from '../../src/profile/identifier.ts';
import { Queue } from '../../src/queue/bullmq.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { laneName } from '../../src/queue/lanes.ts';
import { decodeEnvelope } from '../../src/queue/wire.ts';
import { type Backend, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';

/**
 * Starts web processes with a workspace that has two email groups, one SMS group, a user and a preference
 * center.
 */
export async function createScene(backend: Backend, env: Record<string, string> = {}) {
  const fleet = await startFleet(backend, { edges: 1, workers: 0, env });
  const { pool, workspace } = fleet;
  await liftLimits(pool, workspace.id);
  const news = await createGroup(pool, workspace.id, 'email', { name: 'News' });
  const offers = await createGroup(pool, workspace.id, 'email', { name: 'Offers' });
  const texts = await createGroup(pool, workspace.id, 'sms', { name: 'Texts' });
  const archived = await createGroup(pool, workspace.id, 'email', { name: 'Old', archived: true });
  const port = fleet.edges[0]!.port;

  const config = readConfig(fleet.env);
  const connection = connectProducer(config, fleet.env.DATABASE_URL!);
  const lanes = Array.from(
    { length: config.LANES },
    (_, lane) => new Queue(laneName(lane), connection.options, connection.factory),
  );

  const api = (method: string, path: string, json?: object, key = workspace.key) =>
    send(port, { method, path, key, ...(json && { json: json as never }) });

  /** Inserts a user as a worker would. @returns the profile's id */
  async function addUser(
    externalId: string | null,
    email: string | null,
    { firstName = null as string | null, workspaceId = workspace.id } = {},
  ): Promise<string> {
    const id = newProfileId(Date.now());
    await pool.query(
      `insert into profiles (workspace_id, id, external_id, email, first_name, created_at, updated_at)
       values ($1, $2, $3, $4, $5, now(), now())`,
      [workspaceId, id, externalId, email, firstName],
    );
    return id;
  }

  let made = 0;
  /** Adds a preference center. @returns its id */
  async function addCenter(
    pageHtml: string,
    confirmationHtml = 'Saved: {{subscribed_state.${email_global}}}',
    workspaceId = workspace.id,
  ): Promise<string> {
    const id = newId();
    await pool.query(
      `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
       values ($1, $2, $3, 'Choices', $4, $5, 'active')`,
      [workspaceId, id, `center-${++made}`, pageHtml, confirmationHtml],
    );
    return id;
  }

  return {
    ...{ fleet, pool, workspace, port, api, addUser, addCenter },
    groups: { news, offers, texts, archived },

    async otherWorkspace() {
      return createWorkspace(pool, `other-${++made}`);
    },

    /** Returns the link that the API creates for a user and a center. */
    async urlOf(center: string, userId: string, key = workspace.key): Promise<string> {
      const path = `/preference_center/v1/${center}/url/${encodeURIComponent(userId)}`;
      const { status, body } = await api('GET', path, undefined, key);
      if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
      return body.preference_center_url;
    },

    /** Submits a form as a browser does. */
    submit: (url: string, fields: Record<string, string>) =>
      fetch(url, { method: 'POST', body: new URLSearchParams(fields) }),

    /** Returns the objects of all waiting jobs, in no particular order. */
    async queued(): Promise<AcceptedObject[]> {
      const jobs = await Promise.all(lanes.map((lane) => lane.getJobs()));
      return jobs.flat().flatMap(({ data }) => decodeEnvelope(data).objects);
    },

    async stop() {
      await Promise.all(lanes.map((lane) => lane.close()));
      await connection.stop();
      await fleet.stop();
    },
  };
}

export type Scene = Awaited<ReturnType<typeof createScene>>;

/** Returns a page with a box for each group and the choice for email as a whole. */
export function pageWith(...groups: string[]): string {
  const boxes = groups.map(
    (id) =>
      `<label><input type="checkbox" name="{% form_field_name :subscription_group ${id} %}" value="subscribed"{% if subscribed_state.\${${id}} == 'subscribed' %} checked{% endif %}> ${id}</label>`,
  );
  return `<form action="{{preference_center_submit_url}}" method="post">${boxes.join('')}
<label><input type="checkbox" name="{% form_field_name :email_global_state %}" value="unsubscribed"{% if subscribed_state.\${email_global} == 'unsubscribed' %} checked{% endif %}> Unsubscribe from all</label>
<button>Save</button></form>`;
}

/** Creates a center with a box for each email group, and a link for a new user. */
export async function openCenter(scene: Scene, externalId: string) {
  const { news, offers } = scene.groups;
  const center = await scene.addCenter(
    pageWith(news, offers),
    `{{subscribed_state.\${email_global}}} {{subscribed_state.\${${news}}}} {{subscribed_state.\${${offers}}}}`,
  );
  const profile = await scene.addUser(externalId, `${externalId}@example.com`);
  return { center, profile, url: await scene.urlOf(center, externalId) };
}

export const tokenOf = (url: string) => url.split('/').at(-1)!;
export const withToken = (url: string, token: string) => url.replace(tokenOf(url), token);
