import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';

// In a separate folder: the package is large, and does not accept every version of Node that Penstock runs
// on.
const folder = path.join(import.meta.dirname, 'segment');
if (!existsSync(path.join(folder, 'node_modules', '.package-lock.json')))
  execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--engine-strict=false'], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
  });

// Both packages are CommonJS, and one loads the other. Their types would require the types of a browser.
const load = createRequire(path.join(folder, 'package.json'));
const { createTestIntegration } = load('@segment/actions-core') as {
  createTestIntegration(definition: object): Destination;
};
const { default: definition } = load('@segment/action-destinations/dist/destinations/braze') as {
  default: { authentication: { fields: Record<string, object> } };
};
const { fields } = definition.authentication;
const { choices: _, ...endpoint } = fields.endpoint as { choices: unknown };

/** The published definition with any endpoint allowed, and a name that its own validator accepts as a URI. */
const anyEndpoint = {
  ...definition,
  name: 'cloud-mode',
  authentication: { ...definition.authentication, fields: { ...fields, endpoint } },
};

interface Destination {
  testAction(action: string, data: object): Promise<Response[]>;
  testBatchAction(action: string, data: object): Promise<Response[]>;
  /** Status of each event of the last batch. */
  results: { multistatus: { status: number }[] }[];
  onDelete(event: object, settings: Settings): Promise<unknown>;
}

interface Response {
  status: number;
  data: object;
}

interface Settings {
  api_key: string;
  app_id: string;
  endpoint: string;
}

const timestamp = '2026-01-31T12:00:00.000Z';

/** A published client of the protocol; only its endpoint is changed. */
describe.each(eitherBackend)('the npm package @segment/action-destinations; queue on %s', (backend) => {
  const destination = createTestIntegration(anyEndpoint);
  let fleet: Fleet;
  let settings: Settings;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 1, env: { SERVICE_ID_FIELD: 'braze_id' } });
    settings = {
      api_key: fleet.workspace.key,
      app_id: 'app',
      endpoint: `http://127.0.0.1:${fleet.edges[0]!.port}`,
    };
    return fleet.stop;
  });

  /** Runs an action on an event of a source, with the package's own default mapping. */
  async function act(action: string, event: object, mapping: object = {}) {
    const responses = await destination.testAction(action, {
      event: { timestamp, ...event },
      mapping: mapping,
      settings,
      useDefaultMappings: true,
    });
    return responses.at(-1)!;
  }

  async function exported(requested: object) {
    const answer = await fetch(`${settings.endpoint}/users/export/ids`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${settings.api_key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(requested),
    });
    return (await answer.json()) as { users: Record<string, unknown>[] };
  }

  test('updateUserProfile, trackEvent and trackPurchase are accepted, and read back', async () => {
    const profile = await act('updateUserProfile', {
      type: 'identify',
      userId: 'ada',
      traits: {
        firstName: 'Ada',
        lastName: 'Lovelace',
        email: 'ada@example.com',
        gender: 'Female',
        plan: 'pro',
      },
    });
    expect(profile).toMatchObject({ status: 201, data: { message: 'success', attributes_processed: 1 } });
    const event = await act('trackEvent', {
      ...{ type: 'track', userId: 'ada', event: 'Signed Up' },
      properties: { plan: 'pro', seats: 3 },
    });
    expect(event).toMatchObject({ status: 201, data: { message: 'success', events_processed: 1 } });
    const order = {
      currency: 'USD',
      products: [
        { product_id: 'book', price: 12.5, quantity: 2 },
        { product_id: 'pen', price: '1.25', quantity: '4' },
      ],
    };
    // By default it also sends the currency as a property, which the protocol reserves.
    const purchase = await act(
      'trackPurchase',
      { type: 'track', userId: 'ada', event: 'Order Completed', properties: order },
      { properties: { coupon: 'spring' } },
    );
    expect(purchase).toMatchObject({ status: 201, data: { message: 'success', purchases_processed: 2 } });
    await waitUntil(
      async () => {
        const { users } = await exported({ external_ids: ['ada'] });
        expect(users[0]).toMatchObject({
          ...{ first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com', gender: 'F' },
          custom_events: [{ name: 'Signed Up', count: 1 }],
          total_revenue: 30,
        });
        return true;
      },
      { what: 'what the destination sent' },
    );
  });

  test('createAlias creates a user, identifyUser gives that user an external id', async () => {
    const alias = { alias_name: 'tablet-7', alias_label: 'device' };
    const made = await act('createAlias', { type: 'track', userId: 'unused' }, alias);
    expect(made).toMatchObject({ status: 201, data: { message: 'success', aliases_processed: 1 } });
    const identified = await act(
      'identifyUser',
      { type: 'identify', userId: 'grace' },
      { external_id: 'grace', user_alias: alias, merge_behavior: 'merge' },
    );
    expect(identified).toMatchObject({ status: 201, data: { message: 'success', aliases_processed: 1 } });
    await waitUntil(
      async () => {
        const { users } = await exported({ external_ids: ['grace'] });
        expect(users[0]).toMatchObject({ external_id: 'grace', user_aliases: [alias] });
        return true;
      },
      { what: 'the identified user' },
    );
  });

  test('a batch of events is one request, and a deleted user is removed', async () => {
    const events = Array.from({ length: 60 }, (_, index) => ({
      ...{ type: 'track', event: 'Viewed', userId: 'batch', messageId: `m${index}`, timestamp },
    }));
    const responses = await destination.testBatchAction('trackEvent', {
      events: events,
      mapping: { enable_batching: true },
      settings,
      useDefaultMappings: true,
    });
    expect(responses.at(-1)).toMatchObject({ status: 201, data: { events_processed: 60 } });
    await waitUntil(
      async () => {
        const { users } = await exported({ external_ids: ['batch'] });
        expect(users[0]).toMatchObject({ custom_events: [{ name: 'Viewed', count: 60 }] });
        return true;
      },
      { what: 'the batch' },
    );
    await destination.onDelete({ type: 'delete', userId: 'batch' }, settings);
    await waitUntil(async () => (await exported({ external_ids: ['batch'] })).users.length === 0, {
      what: 'the deletion',
    });
  });

  test('a batch over the rate limit ends as 429 for each event, which the client retries', async () => {
    const limited = await createWorkspace(fleet.pool, 'limited');
    await fleet.pool.query("insert into rate_limits values ($1, 'users.track', 1, 3600)", [limited.id]);
    const events = ['m1', 'm2'].map((messageId) => ({
      ...{ type: 'track', event: 'Viewed', userId: 'limited', messageId, timestamp },
    }));
    const batch = async () => {
      await destination.testBatchAction('trackEvent', {
        events,
        mapping: { enable_batching: true },
        settings: { ...settings, api_key: limited.key },
        useDefaultMappings: true,
      });
      return destination.results[0]!.multistatus;
    };
    expect(await batch()).toMatchObject([{ status: 200 }, { status: 200 }]);
    expect(await batch()).toMatchObject([{ status: 429 }, { status: 429 }]);
  });

  test('an unknown key is rejected, and reported as such', async () => {
    const refused = destination.testAction('trackEvent', {
      event: { type: 'track', event: 'Viewed', userId: 'ada', timestamp },
      settings: { ...settings, api_key: 'unknown' },
      useDefaultMappings: true,
    });
    await expect(refused).rejects.toMatchObject({ response: { status: 401 } });
  });
});
