import { normalizePhone } from '../../src/profile/addresses.ts';
import type { Json } from '../../src/profile/json.ts';
import { normalizeCountry, normalizeLanguage } from '../../src/profile/locale.ts';
import { parseTime, toIso } from '../../src/profile/time.ts';
import { isRecord } from '../../src/profile/values.ts';
import { type Card, emptyCard, numberOf, setColumn, setPhone, type Wire } from './card.ts';
import { valueAfter } from './values.ts';

/** Arrays of /users/track. */
export type TrackKind = 'attributes' | 'events' | 'purchases';

type Channel = 'email' | 'sms' | 'archived';

/**
 * Applies every operation one by one, each with a scan of all cards: the result that Penstock must reach.
 * This class models
 * /users/track and the subscription endpoints; `IdentityModel` adds the identity operations.
 */
export class SequentialModel {
  readonly cards: Card[] = [];
  /** States by address: the email state under the empty name, group states under the group's id. */
  readonly addressStates = new Map<string, string>();
  readonly #channels: ReadonlyMap<string, Channel>;
  /** Number of the current operation. */
  protected clock = 0;

  /** @param channels of the subscription groups */
  constructor(channels: ReadonlyMap<string, Channel> = new Map()) {
    this.#channels = channels;
  }

  /** Adds a user that exists before the first operation. */
  seed(serviceId: string, externalId: string | undefined): void {
    Object.assign(this.#newCard(), { serviceId, externalId });
  }

  /** Applies an object that web has accepted. */
  apply(kind: TrackKind, object: Wire): void {
    this.clock++;
    if (kind === 'attributes' && object.push_token_import === true) {
      this.#importTokens(object);
      return;
    }
    const match = this.find(object);
    if (!match && !mayCreate(object)) return;
    if (kind === 'attributes' && losesDigits(match, object)) return;
    const card = match ?? this.create(object);
    card.updated = this.clock;
    if (kind === 'events') {
      card.events.push({
        name: object.name as string,
        time: isoOf(object.time!),
        properties: object.properties ?? null,
      });
    } else if (kind === 'purchases') {
      card.purchases.push({
        product: object.product_id as string,
        currency: (object.currency as string).toUpperCase(),
        price: object.price as number,
        quantity: (object.quantity ?? 1) as number,
        time: isoOf(object.time!),
      });
    } else this.#change(card, object);
  }

  /** Applies an accepted element of /v2/subscription/status/set, or an address of /email/status. */
  set({ subscription_group_id, subscription_state, external_ids, emails, phones, email }: Wire): void {
    const state = subscription_state as string;
    if (email !== undefined) {
      this.addressStates.set(`${email} `, state);
      return;
    }
    if (external_ids === undefined) {
      if (this.#channels.get(subscription_group_id as string) === 'archived') return;
      this.addressStates.set(`${emails ?? phones} ${subscription_group_id}`, state);
      return;
    }
    const card = this.find({ external_id: external_ids });
    const setting = { subscription_group_id: subscription_group_id!, subscription_state: state };
    if (card) this.#subscribe(card, { subscription_groups: [setting] });
  }

  /** Finds a user by the first of external id, alias, service id, email, phone. */
  protected find(object: Wire): Card | undefined {
    const { external_id, user_alias, service_id, email, phone } = object;
    if (external_id != null) {
      const id = external_id as string;
      return this.cards.find(({ externalId, deprecated }) => externalId === id || deprecated.has(id));
    }
    if (user_alias != null) {
      const { alias_label, alias_name } = user_alias as Record<string, string>;
      return this.cards.find(({ aliases }) => aliases.get(alias_label!) === alias_name);
    }
    if (service_id != null) return this.cards.find((card) => card.serviceId === service_id);
    if (email != null) return this.#best((card) => card.columns.get('email') === email);
    const number = normalizePhone(phone as string)!.phone;
    return this.#best((card) => numberOf(card) === number);
  }

  /** Selects one of several users of an address: with an external id first, then the one updated last. */
  #best(matches: (card: Card) => boolean): Card | undefined {
    const violations = this.cards.filter(matches);
    const identified = violations.filter(({ externalId }) => externalId !== undefined);
    const candidates = identified.length > 0 ? identified : violations;
    return candidates.sort((a, b) => b.updated - a.updated)[0];
  }

  protected create({ external_id, user_alias, email, phone }: Wire): Card {
    const card = this.#newCard();
    if (external_id != null) card.externalId = external_id as string;
    else if (user_alias != null) {
      const { alias_label, alias_name } = user_alias as Record<string, string>;
      card.aliases.set(alias_label!, alias_name!);
    } else if (email != null) card.columns.set('email', email);
    else setPhone(card, phone as string);
    return card;
  }

  #newCard(): Card {
    const card = emptyCard(this.clock);
    this.cards.push(card);
    return card;
  }

  #change(card: Card, object: Wire): void {
    for (const [name, value] of Object.entries(object)) {
      if (notData.has(name)) continue;
      if (name === 'phone') this.#changePhone(card, value as string | null);
      else if (name === 'email') this.#changeEmail(card, value as string | null);
      else if (name === 'push_tokens') for (const token of value as Wire[]) this.#give(token, card);
      else if (Object.hasOwn(columns, name)) setColumn(card, name, columns[name]!(value));
      else {
        const after = valueAfter(card.custom.get(name), value, object._merge_objects === true);
        if (after === undefined) card.custom.delete(name);
        else card.custom.set(name, after);
      }
    }
    this.#subscribe(card, object);
  }

  /**
   * The new number takes over the user's states that it does not have yet; without a number the user keeps
   * them.
   */
  #changePhone(card: Card, sent: string | null): void {
    const before = numberOf(card);
    setPhone(card, sent);
    const after = numberOf(card);
    if (before === after) return;
    for (const group of this.#channels.keys()) {
      if (this.#channels.get(group) !== 'sms') continue;
      const stated =
        before === undefined ? card.states.get(group) : this.addressStates.get(`${before} ${group}`);
      if (stated === undefined) continue;
      if (after === undefined) card.states.set(group, stated);
      else {
        card.states.delete(group);
        if (!this.addressStates.has(`${after} ${group}`)) this.addressStates.set(`${after} ${group}`, stated);
      }
    }
  }

  /**
   * States that the user had without an address move to the first one if it has none; an address in use has
   * states.
   */
  #changeEmail(card: Card, address: string | null): void {
    const isFirst = address !== null && !card.columns.has('email');
    const exists = this.cards.some((other) => other !== card && other.columns.get('email') === address);
    setColumn(card, 'email', address);
    if (!isFirst) return;
    for (const group of ['', ...this.#channels.keys()]) {
      const stated = this.#channels.get(group) === 'sms' ? undefined : card.states.get(group);
      if (stated === undefined) continue;
      card.states.delete(group);
      const key = `${address} ${group}`;
      const hasState = this.addressStates.has(key) || (group === '' && exists);
      if (!hasState) this.addressStates.set(key, stated);
    }
  }

  /** A state belongs to the address, and so to all its users. */
  #subscribe(card: Card, { email_subscribe, subscription_groups }: Wire): void {
    const email = card.columns.get('email');
    const phone = numberOf(card);
    const set = (address: Json | undefined, group: string, state: Json | undefined) => {
      if (address === undefined) card.states.set(group, state as string);
      else this.addressStates.set(`${address} ${group}`, state as string);
    };
    if (email_subscribe !== undefined) set(email, '', email_subscribe);
    for (const { subscription_group_id, subscription_state } of (subscription_groups ?? []) as Wire[]) {
      const channel = this.#channels.get(subscription_group_id as string)!;
      if (channel === 'archived') continue;
      set(channel === 'email' ? email : phone, subscription_group_id as string, subscription_state);
    }
  }

  #importTokens(object: Wire): void {
    for (const token of object.push_tokens as Wire[]) {
      if (this.cards.some(({ tokens }) => tokens.has(token.token as string))) continue;
      this.#change(this.#newCard(), { ...object, push_tokens: [token] });
    }
  }

  #give({ token }: Wire, owner: Card): void {
    for (const { tokens } of this.cards) tokens.delete(token as string);
    owner.tokens.add(token as string);
  }
}

const notData = new Set([
  ...['external_id', 'user_alias', 'service_id', '_update_existing_only', '_merge_objects'],
  ...['email_subscribe', 'subscription_groups', 'push_token_import'],
]);

/** Stored value of a standard attribute; undefined: the stored value stays. */
const columns: Record<string, (value: Json) => Json | undefined> = {
  first_name: (value) => value,
  home_city: (value) => value,
  push_subscribe: (value) => value,
  email_open_tracking_disabled: (value) => value,
  facebook: (value) => value,
  country: (value) => (value === null ? null : normalizeCountry(value as string)),
  language: (value) => (value === null ? null : normalizeLanguage(value as string)),
  date_of_last_session: (value) => (value === null ? null : isoOf(value)),
  current_location: (value) => value,
};

/**
 * Checks whether an increment creates an integer beyond 2^53 - 1: then the whole object becomes a dead
 * letter.
 */
function losesDigits(result: Card | undefined, object: Wire): boolean {
  return Object.entries(object).some(([name, value]) => {
    if (!isRecord(value) || !Object.hasOwn(value, 'inc')) return false;
    const sum = valueAfter(result?.custom.get(name), value, false);
    return Number.isInteger(sum) && !Number.isSafeInteger(sum);
  });
}

/**
 * An alias creates a user only on an explicit false, a service id never, other identifiers unless the object
 * is update-only.
 */
function mayCreate({ external_id, user_alias, service_id, _update_existing_only }: Wire): boolean {
  if (external_id == null && user_alias != null) return _update_existing_only === false;
  if (external_id == null && service_id != null) return false;
  return _update_existing_only !== true;
}

function isoOf(time: Json): string {
  return toIso(parseTime(time as string)!);
}
