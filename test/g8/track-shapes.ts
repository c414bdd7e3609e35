import { CROWDED, type Grown, OVERCROWDED } from './grown.ts';
import { full, type Making, parts, range, type Shape } from './shape.ts';

/** Builders of attribute objects, for one user per object or for the same user in all objects. */
function attributes({
  grown,
  bytes,
  random,
}: Making): Record<string, (index: number, share: number) => string> {
  const first = Math.floor(random() * grown.heavy);
  const one = (kind: Grown['kinds'][number]) => {
    const start = grown.kinds.indexOf(kind);
    return `heavy-${start + 4 * Math.floor(random() * Math.floor((grown.heavy - 4) / 4))}`;
  };
  const [arrays, objects, texts, ids] = grown.kinds.map(one);
  const five = (share: number, make: (share: number) => string) =>
    range(5)
      .map((index) => `"list${index}":${make(share / 5 - 20)}`)
      .join();
  const ofOne =
    (user: string, inner: (share: number, index: number) => string) => (index: number, share: number) =>
      `{"external_id":"${user}",${inner(share - 60, index)}}`;
  const match = (value: number | string, rest = '') =>
    `{"$identifier_key":"id","$identifier_value":${value}${rest}}`;
  return {
    'removals from full arrays': ofOne(arrays!, (share) =>
      five(share, (each) => `{"$remove":[${parts(each, 100, match)}]}`),
    ),
    'removals from full arrays of each user': (index, share) =>
      `{"external_id":"heavy-${(first + index) % grown.heavy}",${five(share - 60, (each) => `{"$remove":[${parts(each, 100, match)}]}`)}}`,
    'removals of what is there': ofOne(ids!, (share, index) =>
      five(share, (each) => `{"$remove":[${parts(each, 100, (position) => match(100 * index + position))}]}`),
    ),
    'updates of full arrays': ofOne(ids!, (share) =>
      five(
        share,
        (each) =>
          `{"$update":[${parts(each, 100, (offset) => `{"$identifier_key":"a","$identifier_value":1,"$new_object":{"a":1,"b":${offset}}}`)}]}`,
      ),
    ),
    'updates that merge': ofOne(
      ids!,
      (share) =>
        `"_merge_objects":true,${five(share, (each) => `{"$update":[${parts(each, 100, (position) => match(position, `,"$new_object":{"c":${position}}`))}]}`)}`,
    ),
    'additions to full arrays': ofOne(arrays!, (share) =>
      five(share, (each) => `{"$add":[${parts(each, 30_000, () => '{}')}]}`),
    ),
    'a key merged into full objects': ofOne(
      objects!,
      (_, index) => `"_merge_objects":true,${five(0, () => `{"k${index}":2}`)}`,
    ),
    'keys merged into full objects': ofOne(
      objects!,
      (share, index) =>
        `"_merge_objects":true,${five(share, (each) => `{${parts(each, 900, (position) => `"k${(index * 31 + position) % 8000}":3`)}}`)}`,
    ),
    'full objects anew': (index, share) =>
      `{"external_id":"heavy-${(first + index) % grown.heavy}",${five(Math.min(share - 60, 400_000), (each) => `{${parts(each, 900, (location) => `"n${location}":1`)}}`)}}`,
    'names for a full user': ofOne(texts!, (share, index) =>
      parts(share, 2000, (position) => `"t${index}-${position}":"${'x'.repeat(200)}"`),
    ),
    'elements of arrays': ofOne(
      texts!,
      (share, index) => `"tags":{"add":[${parts(share, 500, (position) => `"${index}-${position}"`)}]}`,
    ),
    'attributes by a crowded address': (index, share) =>
      `{"email":"${CROWDED.email}",${parts(share - 100, 250, (position) => `"c${position}":${index}`)}}`,
    'attributes by an overcrowded address': (index) => `{"email":"${OVERCROWDED.email}","c":${index}}`,
    'a crowded address for each': (index, share) =>
      `{"external_id":"new-${first}-${index}","email":"${CROWDED.email}","phone":"${CROWDED.phone}","x":"${'x'.repeat(Math.max(0, Math.min(255, share - 150)))}"}`,
    'push tokens': (index, share) =>
      `{"external_id":"heavy-${(first + index) % grown.heavy}","push_tokens":[${parts(share - 80, 100, (position) => `{"app_id":"app","token":"${first}-${index}-${position}-${'t'.repeat(400)}"}`)}]}`,
    'states of groups': (index) =>
      `{"external_id":"heavy-${(first + index) % grown.heavy}","subscription_groups":[${parts(bytes / 75 - 80, 50, (position) => `{"subscription_group_id":"${grown.groups[position]}","subscription_state":"${index % 2 ? 'subscribed' : 'unsubscribed'}"}`)}]}`,
    'values within one another': ofOne(
      texts!,
      (share) => `"deep":${'{"a":'.repeat(Math.min(40, share / 6))}1${'}'.repeat(Math.min(40, share / 6))}`,
    ),
    'texts that are cut': ofOne(texts!, (share) => `"long":"${'💥'.repeat(Math.max(1, share / 4 - 10))}"`),
  };
}

/** Returns the worst known requests to /users/track. */
export function track(making: Making): Shape[] {
  const { bytes, grown, random } = making;
  const time = '"time":"2026-01-31T12:00:00Z"';
  const user = `heavy-${Math.floor(random() * Math.min(50, grown.heavy))}`;
  const properties = (share: number) =>
    `{${parts(Math.min(share - 150, 50_000), 256, (position) => `"p${position}":[{"a":"${'y'.repeat(150)}"}]`)}}`;
  const events = (name: string, who: string) =>
    full(
      75,
      bytes / 2,
      (index, share) => `{${who},"name":"${name}${index}",${time},"properties":${properties(share)}}`,
    );
  const purchases = (who: string) =>
    full(
      75,
      bytes / 2,
      (index, share) =>
        `{${who},"product_id":"bought${index}","currency":"EUR","price":1.5,"quantity":100,${time},"properties":${properties(share)}}`,
    );
  const attributeShapes = Object.entries(attributes(making)).map(([of, make]) => ({
    of,
    body: `{"attributes":${full(75, bytes, make)}}`,
  }));
  const activity = (of: string, who: string) => ({
    of,
    body: `{"events":${events('kind', who)},"purchases":${purchases(who)}}`,
  });
  return [
    ...attributeShapes,
    activity('activity of one user', `"external_id":"${user}"`),
    activity('activity by a crowded address', `"email":"${CROWDED.email}"`),
    {
      ...activity('activity, once only', `"external_id":"${user}"`),
      headers: { 'idempotency-key': `key-${random()}` },
    },
    {
      of: 'everything at once',
      body: `{"attributes":${full(75, bytes / 2, attributes(making)['keys merged into full objects']!)},"events":${full(75, bytes / 4, (index) => `{"email":"${CROWDED.email}","name":"e${index}",${time}}`)},"purchases":${full(75, bytes / 4, (index) => `{"phone":"${CROWDED.phone}","product_id":"p${index}","currency":"EUR","price":1,${time}}`)}}`,
    },
    {
      of: 'arrays within one another',
      body: `{"attributes":${'['.repeat(Math.min(900, bytes / 2 - 20))}${']'.repeat(Math.min(900, bytes / 2 - 20))}}`,
    },
    {
      of: 'very many values',
      body: `{"attributes":[{"external_id":"x","a":[${parts(bytes - 100, 199_000, () => '{}')}]}]}`,
    },
    {
      of: 'very many keys',
      body: `{"attributes":${full(8, bytes, (index, share) => `{"external_id":"keys-${index}",${parts(share - 50, 9900, (position) => `"k${position}":1`)}}`)}}`,
    },
    {
      of: 'numbers',
      body: `{"attributes":[{"external_id":"x","a":[${parts(bytes - 100, 1_000_000, () => '1.5e300')}]}]}`,
    },
  ];
}
