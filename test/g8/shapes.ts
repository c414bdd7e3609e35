import { pick } from '../../tools/load/random.ts';
import { ALLOWED, CROWDED, OVERCROWDED, SHOPS } from './grown.ts';
import { identity } from './identity-shapes.ts';
import { full, json, list, type Making, padding, parts, range, type Shape } from './shape.ts';
import { track } from './track-shapes.ts';

function reads({ bytes, grown, random }: Making): Record<string, Shape[]> {
  const group = pick(random, grown.groups);
  const centers = { preferenceCenterExternalId: pick(random, grown.centers) };
  const filler = padding(bytes - 2000);
  const ids = json(range(50).map((index) => `heavy-${index}`));
  const names = range(50)
    .map((index) => `external_id%5B%5D=heavy-${index}`)
    .join('&');
  const page = 'start_date=2020-01-01&end_date=2030-01-01&limit=500';
  return {
    'users.export.ids': [
      { of: 'fifty full users', body: `{"external_ids":${ids}}${filler}` },
      { of: 'all of a crowded address', body: `{"email_address":"${CROWDED.email}"}${filler}` },
      { of: 'all of an overcrowded address', body: `{"email_address":"${OVERCROWDED.email}"}${filler}` },
      { of: 'all of a device', body: `{"device_id":"device1"}${filler}` },
      {
        of: 'all of everything',
        body: `{"external_ids":${ids},"email_address":"${OVERCROWDED.email}","phone":"${CROWDED.phone}","device_id":"device1"}${filler}`,
      },
    ],
    'subscription.status.get': [{ of: 'fifty users', query: `subscription_group_id=${group}&${names}` }],
    'subscription.groups.get': [
      { of: 'fifty users', query: names },
      { of: 'all of an overcrowded address', query: `email=${OVERCROWDED.email}&limit=100` },
    ],
    'email.unsubscribe': [{ of: 'the longest page', query: `${page}&offset=10000` }],
    'email.hard_bounces': [{ of: 'the longest page', query: `${page}&offset=10000` }],
    'cdi.integrations': [{ of: 'all' }],
    'cdi.job_sync_status': [{ of: 'a full one', params: { integration_id: grown.integration } }],
    'cdi.sync': [
      { of: 'rows of the longest kind', params: { integration_id: grown.integration }, body: `{}${filler}` },
    ],
    'preference_center.list': [{ of: 'all' }],
    'preference_center.get': [{ of: 'the largest', params: centers }],
    'preference_center.user.get': [{ of: 'of a full user', params: { ...centers, userId: 'heavy-0' } }],
  };
}

function writes({ bytes, grown, random }: Making): Record<string, Shape[]> {
  const emails = (of: string, make: (index: number) => string, rest = ''): Shape => ({
    of,
    body: `{"email":${full(50, bytes, (index, share) => json(make(index)) + padding(share - 60))}${rest}}`,
  });
  const crowd = [
    emails('a crowded address', (index) => (index % 2 ? CROWDED.email : OVERCROWDED.email)),
    emails('addresses', () => `new-${random()}@example.com`),
  ];
  const state = '"subscription_state":"unsubscribed"';
  const fifty = (make: (index: number) => string) => list(range(50).map((index) => json(make(index))));
  const element = (index: number) =>
    `{"subscription_group_id":"${grown.groups[index]}",${state},"external_ids":${fifty((position) => `crowd-${(50 * index + position) % 500}`)},"emails":${fifty((location) => (location % 2 ? CROWDED.email : OVERCROWDED.email))}}`;
  const center = { preferenceCenterExternalId: pick(random, grown.centers) };
  const templates = {
    'templates of the longest kind': '{% if true %}p{% endif %}',
    'loops without end': '{% for i in (1..1000000) %}{% for j in (1..1000000) %}x{% endfor %}{% endfor %}',
    'texts that double': `{% assign a = "x" %}${'{% assign a = a | append: a %}'.repeat(60)}{{ a }}`,
    'tags within one another': '{% if true %}'.repeat(200) + '{% endif %}'.repeat(200),
  };
  const saved = (name?: string): Shape[] =>
    Object.entries(templates).map(([of, text]) => {
      const html = json(text.repeat(Math.max(1, Math.floor(Math.min(262_000, bytes / 3) / text.length))));
      return {
        of,
        params: center,
        body: `{${name ? `"name":"${name}${Math.floor(random() * 1e9)}",` : ''}"preference_center_page_html":${html},"confirmation_page_html":${html}}`,
      };
    });
  return {
    'subscription.status.set.v2': [
      {
        of: 'addresses of nobody',
        body: `{"subscription_groups":[${parts(bytes - 100, 50, (index) => `{"subscription_group_id":"${grown.groups[index]}",${state},"emails":${fifty((target) => `${index}-${target}@example.net`)}}`)}]}`,
      },
      {
        of: 'users of a crowded address',
        body: `{"subscription_groups":[${parts(bytes - 100, 50, element)}]}`,
      },
      {
        of: 'users one by one',
        body: `{"subscription_groups":[${parts(bytes - 100, 50, (index) => `{"subscription_group_id":"${grown.groups[index]}",${state},"external_ids":${fifty((position) => `heavy-${(index + position) % grown.heavy}`)}}`)}]}`,
      },
    ],
    'subscription.status.set': [
      {
        of: 'crowded addresses',
        body: `{"subscription_group_id":"${grown.groups[0]}",${state},"email":${full(50, bytes, (index, share) => json(index % 2 ? CROWDED.email : OVERCROWDED.email) + padding(share - 60))}}`,
      },
    ],
    'email.status': [emails('a crowded address', () => CROWDED.email, ',"subscription_state":"opted_in"')],
    'email.blocklist': crowd,
    'email.blacklist': crowd,
    'email.bounce.remove': crowd,
    'email.spam.remove': crowd,
    'preference_center.create': saved('made'),
    'preference_center.update': saved(),
    'preference_center.save': saved(),
  };
}

function scim({ bytes, grown, random }: Making): Record<string, Shape[]> {
  const params = { id: pick(random, grown.accounts) };
  const last = { id: grown.accounts[Math.floor(random() * 10)]! };
  const permissions = `[${parts(bytes / 2, 500, (index) => json(`${index}${'a'.repeat(200)}`))}]`;
  const filter = range(19)
    .map(() => 'value co "aab"')
    .join(' or ');
  const patch = (operations: string[]) =>
    `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[${operations.join()}]}`;
  const removal = (path: string) => `{"op":"remove","path":${json(path)}}`;
  const groups = (share: number, allowed = ALLOWED) =>
    `[${parts(share, 450, (index) => json({ appGroupName: SHOPS[index], appGroupPermissions: allowed }))}]`;
  const account = (name: string) =>
    `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"${name}","name":{"givenName":"A","familyName":"L"},"department":"pm","permissions":{"companyPermissions":["manage_company_settings"],"appGroup":${groups(bytes - 600)}}}`;
  const unknown = `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"${random()}@example.com","name":{"givenName":"A","familyName":"L"},"department":"pm","permissions":{"appGroup":[${parts(bytes - 600, 400, () => `{"appGroupName":"${SHOPS[0]}","appGroupPermissions":[${parts(bytes / 500, 46, () => '"basic_access"')}]}`)}]}}`;
  const comparisons = (column: string) =>
    range(20)
      .map((index) => `${column} co "${index}"`)
      .join(' or ');
  return {
    'scim.users.get': [{ of: 'the largest', params }],
    'scim.users.list': [
      { of: 'the longest page', query: 'count=200' },
      { of: 'the longest filter', query: `filter=${encodeURIComponent(comparisons('userName'))}&count=200` },
      {
        of: 'addresses',
        query: `filter=${encodeURIComponent(
          range(20)
            .map((index) => `emails.value co "${index}"`)
            .join(' or '),
        )}`,
      },
    ],
    'scim.users.create': [
      { of: 'the largest', body: account(`${random()}@example.com`) },
      { of: 'one workspace named again and again', body: unknown },
    ],
    'scim.users.replace': [
      { of: 'the largest', params: last, body: account(`${random()}@example.com`) },
      { of: 'one workspace named again and again', params: last, body: unknown },
    ],
    'scim.users.patch': [
      {
        of: 'a name of the fullest account',
        params,
        body: patch(['{"op":"replace","path":"name.givenName","value":"Grace"}']),
      },
      {
        of: 'all workspaces anew',
        params: last,
        body: patch([
          `{"op":"replace","path":"permissions.appGroup","value":${groups(bytes - 400, ALLOWED.slice(1))}}`,
        ]),
      },
      {
        of: 'workspaces taken away one by one',
        params,
        body: patch(
          SHOPS.slice(0, 20).map((name) => removal(`permissions.appGroup[appGroupName eq "${name}"]`)),
        ),
      },
      {
        of: 'filters of a long list',
        params: last,
        body: patch([
          `{"op":"replace","path":"permissions.companyPermissions","value":${permissions}}`,
          ...range(90).map(() => removal(`permissions.companyPermissions[${filter}]`)),
        ]),
      },
      {
        of: 'filters of the fullest account',
        params,
        body: patch(range(90).map(() => removal('permissions.appGroup[appGroupPermissions co "aab"]'))),
      },
      {
        of: 'one text',
        params: last,
        body: patch([`{"op":"replace","path":"name.givenName","value":"${'a'.repeat(bytes - 300)}"}`]),
      },
    ],
    'scim.users.delete': [
      { of: 'the largest', params: { id: grown.accounts[10 + Math.floor(random() * 100)]! } },
    ],
  };
}

/** Returns the worst known requests by operation id. */
export function shapesOf(making: Making): Record<string, Shape[]> {
  return {
    'users.track': track(making),
    ...identity(making),
    ...reads(making),
    ...writes(making),
    ...scim(making),
  };
}
