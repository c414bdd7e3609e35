import type { Json } from '../../src/profile/json.ts';
import { pick } from '../../tools/load/random.ts';
import type { Wire } from '../model/card.ts';
import type { Kind } from '../model/identity-model.ts';
import type { TrackKind } from '../model/sequential-model.ts';
import type { Names } from './names.ts';

type Random = () => number;

/** A request: its path, and its elements in the order of their effect. */
export interface Request {
  path: string;
  body: Wire;
  elements: { kind: Kind; element: Wire }[];
}

const weights: [kind: Kind, weight: number][] = [
  ['attributes', 20],
  ['events', 25],
  ['purchases', 10],
  ['alias_new', 9],
  ['alias_update', 4],
  ['identify', 10],
  ['merge', 9],
  ['delete', 5],
  ['rename', 5],
  ['remove', 3],
];

const paths: Record<Exclude<Kind, TrackKind>, [path: string, array: string]> = {
  alias_new: ['/users/alias/new', 'user_aliases'],
  alias_update: ['/users/alias/update', 'alias_updates'],
  identify: ['/users/identify', 'aliases_to_identify'],
  merge: ['/users/merge', 'merge_updates'],
  delete: ['/users/delete', 'external_ids'],
  rename: ['/users/external_ids/rename', 'external_id_renames'],
  remove: ['/users/external_ids/remove', 'external_ids'],
};

/** A random request of 1 to 4 elements about the users of one circle. */
export function generateRequest(random: Random, names: Names, time: () => string): Request {
  const kind = weighted(random, names);
  const count = random() < 0.7 ? 1 : 2 + Math.floor(random() * 3);
  if (kind === 'attributes' || kind === 'events' || kind === 'purchases') {
    return trackRequest(random, names, time, kind, count);
  }
  if (kind === 'delete') return deleteRequest(random, names, count);
  if (kind === 'identify') return identifyRequest(random, names, count);
  const elements = times(count, () => ({ kind, element: elementOf(kind, random, names) }));
  const [path, array] = paths[kind];
  const sent = elements.map(({ element }) => (kind === 'remove' ? element.external_id! : element));
  return { path, body: { [array]: sent }, elements };
}

function trackRequest(random: Random, names: Names, time: () => string, first: Kind, count: number): Request {
  const body: Record<string, Json[]> = { attributes: [], events: [], purchases: [] };
  for (let index = 0; index < count; index++) {
    const kind = index === 0 ? first : pick(random, ['attributes', 'events', 'purchases'] as const);
    body[kind]!.push(trackObject(kind, random, names, time));
  }
  const elements = (['attributes', 'events', 'purchases'] as const).flatMap((kind) =>
    body[kind]!.map((element) => ({ kind, element: element as Wire })),
  );
  return { path: '/users/track', body, elements };
}

function trackObject(kind: Kind, random: Random, names: Names, time: () => string): Wire {
  const who = someone(random, names);
  if (kind === 'events') return { ...who, name: pick(random, ['seen', 'clicked']), time: time() };
  if (kind === 'purchases') {
    const product_id = pick(random, ['book', 'lamp']);
    return {
      ...who,
      product_id,
      currency: pick(random, ['EUR', 'USD']),
      price: 3,
      quantity: 2,
      time: time(),
    };
  }
  return {
    ...who,
    ...(random() < 0.3 && { first_name: pick(random, ['Ada', 'Bea', 'Cleo']) }),
    ...(names.emails && random() < 0.3 && !('email' in who) && { email: names.email() }),
    ...(random() < 0.5 && { visits: { inc: 1 } }),
    ...(random() < 0.4 && { colour: random() < 0.25 ? null : pick(random, ['red', 'blue', 'green']) }),
    place: pick(random, ['here', 'there']),
  };
}

function someone(random: Random, names: Names): Wire {
  const chance = random();
  if (chance < (names.emails ? 0.55 : 0.7)) return { external_id: names.externalId() };
  if (chance < 0.85 || !names.emails) {
    const user_alias = names.alias();
    return random() < 0.5 ? { user_alias } : { user_alias, _update_existing_only: false };
  }
  return { email: names.email() };
}

function elementOf(kind: Kind, random: Random, names: Names): Wire {
  switch (kind) {
    case 'alias_new':
      return random() < 0.5 ? names.newAlias() : { ...names.newAlias(), external_id: names.externalId() };
    case 'alias_update': {
      const { alias_label, alias_name } = names.alias();
      const new_alias_name = names.newAlias().alias_name!;
      return { alias_label: alias_label!, old_alias_name: alias_name!, new_alias_name };
    }
    case 'merge': {
      const selector = selectorOf(random, names);
      return { identifier_to_merge: selector(), identifier_to_keep: selector() };
    }
    case 'rename':
      return names.renaming();
    default:
      return { external_id: names.externalId() };
  }
}

/** Selects both sides of a merge by the same kind of name. */
function selectorOf(random: Random, names: Names): () => Wire {
  const chance = random();
  if (chance < 0.6) return () => ({ external_id: names.externalId() });
  if (chance < 0.8 || !names.emails) return () => ({ user_alias: names.alias() });
  return () => ({ email: names.email(), prioritization: prioritization(random) });
}

function prioritization(random: Random): string[] {
  const kind = pick(random, [[], ['identified'], ['unidentified']]);
  const time = pick(random, [[], ['most_recently_updated'], ['least_recently_updated']]);
  return random() < 0.5 ? [...kind, ...time] : [...time, ...kind];
}

function identifyRequest(random: Random, names: Names, count: number): Request {
  const byEmail = names.emails && random() < 0.25;
  const elements = times(count, () => ({
    kind: 'identify' as const,
    element: {
      external_id: names.externalId(),
      ...(byEmail
        ? { email: names.email(), prioritization: prioritization(random) }
        : { user_alias: names.alias() }),
    } as Wire,
  }));
  const array = byEmail ? 'emails_to_identify' : 'aliases_to_identify';
  return { path: '/users/identify', body: { [array]: elements.map(({ element }) => element) }, elements };
}

function deleteRequest(random: Random, names: Names, count: number): Request {
  const byAlias = random() < 0.4;
  const elements = times(count, () => ({
    kind: 'delete' as const,
    element: (byAlias ? { user_alias: names.alias() } : { external_id: names.externalId() }) as Wire,
  }));
  const body: Wire = byAlias
    ? { user_aliases: elements.map(({ element }) => element.user_alias!) }
    : { external_ids: elements.map(({ element }) => element.external_id!) };
  return { path: '/users/delete', body, elements };
}

function weighted(random: Random, names: Names): Kind {
  const possible = weights.filter(([kind]) => names.removes || kind !== 'remove');
  let left = random() * possible.reduce((sum, [, weight]) => sum + weight, 0);
  for (const [kind, weight] of possible) {
    left -= weight;
    if (left < 0) return kind;
  }
  return 'events';
}

function times<T>(count: number, make: () => T): T[] {
  return Array.from({ length: count }, make);
}
