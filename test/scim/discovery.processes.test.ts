import type { IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { aboutRequest } from '../../src/edge/request.ts';
import type { Json } from '../../src/profile/json.ts';
import { companyPermissions, teamPermissions, workspacePermissions } from '../../src/schemas/permissions.ts';
import { accountOf, createScene, type Provider, refusal, type Scene, USER } from './scene.ts';

/** An attribute in a document of /Schemas. */
interface Described {
  name: string;
  type: string;
  required: boolean;
  mutability: string;
  subAttributes?: Described[];
}

/** Removes a member of an object, or of each object in a list on the path. */
function without(target: Json, [name, ...rest]: string[]): void {
  for (const one of [target].flat() as Record<string, Json>[]) {
    if (rest.length === 0) delete one[name!];
    else without(one[name!]!, rest);
  }
}

let scene: Scene;
let provider: Provider;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
});
afterAll(() => scene.stop());

const at = (path: string) => `http://127.0.0.1:${scene.port}/scim/v2${path}`;

describe('RFC 7644 §4: discovery', () => {
  test('RFC 7643 §5: /ServiceProviderConfig lists the supported parts of SCIM', async () => {
    const { status, body } = await provider.call('GET', '/ServiceProviderConfig');
    expect(status).toBe(200);
    expect(body).toMatchObject({
      schemas: ['urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig'],
      patch: { supported: true },
      bulk: { supported: false },
      filter: { supported: true, maxResults: 200 },
      changePassword: { supported: false },
      sort: { supported: false },
      etag: { supported: true },
      authenticationSchemes: [{ type: 'oauthbearertoken' }],
      meta: { resourceType: 'ServiceProviderConfig', location: at('/ServiceProviderConfig') },
    });
  });

  test('RFC 7643 §6: /ResourceTypes lists User, and has it under its id', async () => {
    const { body } = await provider.call('GET', '/ResourceTypes');
    expect(body).toMatchObject({
      totalResults: 1,
      Resources: [{ id: 'User', endpoint: '/Users', schema: USER }],
    });
    const one = await provider.call('GET', '/ResourceTypes/User');
    expect(one.body).toEqual(body.Resources[0]);
    expect(one.body.meta.location).toBe(at('/ResourceTypes/User'));
    expect(await provider.call('GET', '/ResourceTypes/Group')).toMatchObject({ status: 404 });
  });

  test('RFC 7643 §7: /Schemas describes every attribute of an account, ours among them', async () => {
    const { body } = await provider.call('GET', '/Schemas');
    const [schema] = body.Resources;
    expect(schema.id).toBe(USER);
    const names = schema.attributes.map(({ name }: { name: string }) => name);
    expect(names).toEqual([
      'userName',
      'name',
      'displayName',
      'emails',
      'department',
      'active',
      'lastSignInAt',
      'permissions',
    ]);
    const created = await provider.create({ displayName: 'Ada L.' });
    const common = ['schemas', 'id', 'externalId', 'meta'];
    expect(
      Object.keys(created)
        .filter((name) => !common.includes(name))
        .sort(),
    ).toEqual([...names].sort());
    for (const attribute of schema.attributes)
      expect(attribute).toMatchObject({
        type: expect.any(String),
        multiValued: expect.any(Boolean),
        required: expect.any(Boolean),
        mutability: expect.stringMatching(/^(readOnly|readWrite|immutable)$/),
        returned: expect.any(String),
        uniqueness: expect.any(String),
      });
    expect(schema.attributes[0]).toMatchObject({ mutability: 'immutable', uniqueness: 'server' });
    expect((await provider.call('GET', `/Schemas/${USER}`)).body).toEqual(schema);
    expect(await provider.call('GET', '/Schemas/urn:none')).toMatchObject({ status: 404 });
  });

  /** Attributes of a document of /Schemas, each with its path and its depth. */
  function flat(
    attributes: Described[],
    before: string[] = [],
  ): (Described & { path: string; depth: number })[] {
    return attributes.flatMap((one) => {
      const path = [...before, one.name];
      return [{ ...one, path: path.join('.'), depth: path.length }, ...flat(one.subAttributes ?? [], path)];
    });
  }

  const described = async () => flat((await provider.call('GET', `/Schemas/${USER}`)).body.attributes);

  test('RFC 7643 §2.3.8: complex attributes of /Schemas nest no deeper than two levels', async () => {
    for (const { path, depth, type, subAttributes } of await described()) {
      expect({ path, isComplex: type === 'complex' }).toEqual({
        path,
        isComplex: subAttributes !== undefined,
      });
      if (type === 'complex') expect({ path, depth: Math.min(depth, 3) }).not.toEqual({ path, depth: 3 });
    }
  });

  test('/Schemas marks as `required` exactly the attributes without which a POST is 400', async () => {
    const whole = accountOf('shop', {
      externalId: 'x',
      displayName: 'A',
      active: true,
      emails: [{ value: 'a@x.com', type: 'work', primary: true, display: 'A' }],
      permissions: {
        companyPermissions: ['admin'],
        roles: [{ roleId: 'r-7', roleName: 'Clerk' }],
        appGroup: [
          {
            appGroupId: provider.workspace.id,
            appGroupName: 'shop',
            appGroupPermissions: ['admin'],
            appGroupPermissionSets: [],
            team: [],
          },
        ],
      },
    });
    for (const { path, required } of await described()) {
      const body = structuredClone({ ...whole, userName: `${path.toLowerCase()}@example.com` });
      without(body, path.split('.'));
      const answer = await provider.call('POST', '/Users', body);
      expect({ path, status: answer.status }).toEqual({ path, status: required ? 400 : 201 });
      if (required) expect(answer).toMatchObject(refusal(400, `'${path}' is required`, 'invalidValue'));
    }
  });

  test('PATCH follows /Schemas: read-only is rejected, required stays, others can be removed', async () => {
    for (const { path, depth, mutability, required } of await described()) {
      if (depth > 2) continue;
      const { id } = await provider.create();
      const { status, body } = await provider.patch(id, [{ op: 'remove', path }]);
      const expected =
        mutability === 'readOnly'
          ? { status: 400, scimType: 'mutability' }
          : required
            ? { status: 400, scimType: 'invalidValue' }
            : { status: 200 };
      expect({ path, ...{ status, ...(status === 400 && { scimType: body.scimType }) } }).toEqual({
        path,
        ...expected,
      });
    }
  });

  test('an account keeps its state, active or not, if active is removed', async () => {
    for (const active of [true, false]) {
      const { id } = await provider.create({ active });
      const { status, body } = await provider.patch(id, [{ op: 'remove', path: 'active' }]);
      expect({ status, active: body.active }).toEqual({ status: 200, active });
    }
  });

  test('a filter on a discovery endpoint is 403', async () => {
    for (const path of ['/ServiceProviderConfig', '/ResourceTypes', '/Schemas'])
      expect(await provider.call('GET', `${path}?filter=id%20eq%20%22User%22`)).toMatchObject({
        status: 403,
      });
  });
});

test("RFC 7643 §3.1: locations use the request's host and trusted scheme, or PUBLIC_URL", () => {
  const about = (hops: number, headers: Record<string, string>, PUBLIC_URL = '') =>
    aboutRequest({ headers } as IncomingMessage, { TRUST_PROXY_HOPS: hops, PUBLIC_URL }).baseUrl;
  const forwarded = { host: 'api.example:8443', 'x-forwarded-proto': 'https' };
  expect(about(0, forwarded)).toBe('http://api.example:8443');
  expect(about(1, forwarded)).toBe('https://api.example:8443');
  expect(about(1, { host: 'api.example' })).toBe('http://api.example');
  expect(about(0, { host: 'evil"<script>' })).toBe('');
  expect(about(0, forwarded, 'https://users.example/penstock/')).toBe('https://users.example/penstock');
});

test('the lists of permissions match the protocol', () => {
  expect(companyPermissions).toEqual(['admin', 'manage_company_settings', 'add_remove_app_groups']);
  const classic =
    'admin basic_access approve_deny_campaigns approve_deny_canvases send_campaigns_canvases publish_cards edit_segments export_user_data view_pii view_user_profile manage_dashboard_users manage_media_library view_usage_data import_update_user_data view_billing_details dev_console launch_content_blocks manage_external_integrations manage_apps manage_teams manage_events_attributes_purchases manage_tags manage_email_settings manage_subscription_groups manage_approval_settings manage_catalogs_dashboard_permission';
  const granular =
    'view_campaigns edit_campaigns archive_campaigns view_canvases edit_canvases archive_canvases view_frequency_caps edit_frequency_caps view_message_prioritization edit_message_prioritization view_content_blocks edit_content_blocks archive_content_blocks view_feature_flags edit_feature_flags archive_feature_flags view_segments edit_segments archive_segments view_global_control_group edit_global_control_group view_iam_templates edit_iam_templates archive_iam_templates view_email_templates edit_email_templates archive_email_templates view_webhook_templates edit_webhook_templates archive_webhook_templates view_link_templates edit_link_templates view_media_library_assets view_locations edit_locations archive_locations view_promotion_codes edit_promotion_codes export_promotion_codes view_preference_centers edit_preference_centers edit_reports view_placements edit_placements archive_placements view_banner_templates view_multi_language_settings use_operator view_decisioning_studio_agents view_decisioning_studio_audience view_decisioning_studio_conversion_event view_decisioning_studio_guardrails launch_campaigns launch_canvases approve_deny_campaigns approve_deny_canvases send_campaigns_canvases publish_cards export_user_data view_pii view_user_profile edit_dashboard_users edit_media_library_assets delete_media_library_assets view_import_users import_users edit_user_data view_user_merge_records merge_duplicate_users view_api_keys edit_api_keys view_internal_user_groups edit_internal_user_groups delete_internal_user_groups view_message_activity_log view_event_user_log view_api_identifiers view_api_usage_dashboard view_api_limits view_api_usage_alerts edit_api_usage_alerts view_sdk_debugger edit_sdk_debugger launch_content_blocks edit_cloud_data_ingestion view_app_settings edit_app_settings view_push_settings edit_push_settings view_teams edit_teams archive_teams view_custom_attributes edit_custom_attributes blocklist_custom_attributes delete_custom_attributes export_custom_attributes view_custom_events edit_custom_events blocklist_custom_events delete_custom_events export_custom_events edit_custom_event_property_segmentation view_products edit_products blocklist_products edit_purchase_property_segmentation view_tags edit_tags delete_tags view_email_settings edit_email_settings view_catalogs edit_catalogs export_catalogs delete_catalogs view_whatsapp_settings edit_technology_partners';
  const all = new Set(`${classic} ${granular}`.split(' '));
  expect([...workspacePermissions].sort()).toEqual([...all].sort());
  const ofTeams =
    'admin basic_access approve_deny_campaigns approve_deny_canvases send_campaigns_canvases publish_cards edit_segments export_user_data view_user_profile manage_dashboard_users manage_media_library';
  expect(teamPermissions).toEqual(expect.arrayContaining(ofTeams.split(' ')));
  const granularOfTeams =
    'view_campaigns archive_canvases edit_frequency_caps view_message_prioritization view_content_blocks edit_feature_flags archive_segments edit_global_control_group archive_iam_templates edit_email_templates view_webhook_templates edit_link_templates archive_locations export_promotion_codes edit_preference_centers view_reports create_reports edit_reports view_banner_templates view_media_library_assets view_multi_language_settings use_operator view_decisioning_studio_agents view_decisioning_studio_conversion_event launch_campaigns launch_canvases edit_dashboard_users';
  expect(teamPermissions).toEqual(expect.arrayContaining(granularOfTeams.split(' ')));
  // Only teams have these two permissions about reports.
  expect(teamPermissions.filter((name) => !all.has(name))).toEqual(['view_reports', 'create_reports']);
  for (const name of ['view_pii', 'dev_console', 'edit_api_keys', 'view_tags', 'edit_media_library_assets'])
    expect(teamPermissions).not.toContain(name);
});
