import type { Prioritization } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';

export type Wire = Record<string, Json>;

/** One user, as a person would keep it on a card. */
export interface Card {
  externalId: string | undefined;
  deprecated: Set<string>;
  /** Name by label. */
  aliases: Map<string, string>;
  email: string | undefined;
  firstName: string | undefined;
  custom: Map<string, Json>;
  events: Map<string, { count: number; first: string; last: string }>;
  /** By product and currency. */
  purchases: Map<string, { count: number; revenue: number }>;
  /** When it was updated last, by the number of the operation. */
  updated: number;
}

/** A request: its path, and its elements in the order in which they take effect. */
export interface Request {
  path: string;
  body: Wire;
  elements: { kind: Kind; element: Wire }[];
}

export type Kind =
  | 'attributes'
  | 'events'
  | 'purchases'
  | 'alias_new'
  | 'alias_update'
  | 'identify'
  | 'merge'
  | 'delete'
  | 'rename'
  | 'remove';

/** Every operation one after the other, each looking through all cards: what Penstock must come to. */
export class Cards {
  cards: Card[] = [];
  #clock = 0;

  /** The same users, apart from these. */
  copy(): Cards {
    const other = new Cards();
    other.cards = structuredClone(this.cards);
    other.#clock = this.#clock;
    return other;
  }

  /** @returns what a rename or a remove is refused for, if so */
  apply(kind: Kind, element: Wire): string | undefined {
    this.#clock++;
    switch (kind) {
      case 'attributes':
      case 'events':
      case 'purchases':
        this.#track(kind, element);
        return undefined;
      case 'alias_new':
        this.#aliasNew(element);
        return undefined;
      case 'alias_update':
        this.#aliasUpdate(element);
        return undefined;
      case 'identify':
        this.#identify(element);
        return undefined;
      case 'merge':
        this.#merge(element);
        return undefined;
      case 'delete': {
        const card = this.pick(element);
        if (card) this.#discard(card);
        return undefined;
      }
      case 'rename':
        return this.#rename(element);
      case 'remove':
        return this.#remove(element);
    }
  }

  /** Whom an identifier object means: for an address with `prioritization`, the one who is left. */
  pick(selector: Wire): Card | undefined {
    const { external_id, user_alias, email, prioritization } = selector;
    if (external_id !== undefined) return this.byExternalId(external_id as string);
    if (user_alias !== undefined) return this.byAlias(user_alias as Wire);
    let left = this.cards.filter((card) => card.email === email).sort((a, b) => a.updated - b.updated);
    for (const priority of prioritization as Prioritization[]) {
      if (priority === 'identified') left = left.filter(({ externalId }) => externalId !== undefined);
      if (priority === 'unidentified') left = left.filter(({ externalId }) => externalId === undefined);
      if (priority === 'most_recently_updated') left = left.slice(-1);
      if (priority === 'least_recently_updated') left = left.slice(0, 1);
    }
    return left.length === 1 ? left[0] : undefined;
  }

  byExternalId(id: string): Card | undefined {
    return this.cards.find(({ externalId, deprecated }) => externalId === id || deprecated.has(id));
  }

  byAlias({ alias_label, alias_name }: Wire): Card | undefined {
    return this.cards.find(({ aliases }) => aliases.get(alias_label as string) === alias_name);
  }

  /** Of several on one address: those with an external id first, then the one updated last. */
  #byEmail(email: string): Card | undefined {
    const found = this.cards.filter((card) => card.email === email);
    const identified = found.filter(({ externalId }) => externalId !== undefined);
    return (identified.length > 0 ? identified : found).sort((a, b) => b.updated - a.updated)[0];
  }

  #track(kind: 'attributes' | 'events' | 'purchases', element: Wire): void {
    const { external_id, user_alias, email } = element;
    let card: Card | undefined;
    if (external_id !== undefined) {
      card = this.byExternalId(external_id as string) ?? this.#make({ externalId: external_id as string });
    } else if (user_alias !== undefined) {
      card = this.byAlias(user_alias as Wire);
      if (!card && element._update_existing_only === false) card = this.#make({ alias: user_alias as Wire });
    } else card = this.#byEmail(email as string) ?? this.#make({ email: email as string });
    if (!card) return;
    card.updated = this.#clock;
    if (kind === 'events') addEvent(card, element);
    else if (kind === 'purchases') addPurchase(card, element);
    else changeAttributes(card, element);
  }

  #make({ externalId, alias, email }: { externalId?: string; alias?: Wire; email?: string }): Card {
    const card: Card = {
      externalId,
      deprecated: new Set(),
      aliases: new Map(alias ? [[alias.alias_label as string, alias.alias_name as string]] : []),
      email,
      firstName: undefined,
      custom: new Map(),
      events: new Map(),
      purchases: new Map(),
      updated: this.#clock,
    };
    this.cards.push(card);
    return card;
  }

  #aliasNew(element: Wire): void {
    const holder = this.byAlias(element);
    if (element.external_id === undefined) {
      if (!holder) this.#make({ alias: element });
      return;
    }
    const owner = this.byExternalId(element.external_id as string);
    if (holder || !owner || owner.aliases.has(element.alias_label as string)) return;
    owner.aliases.set(element.alias_label as string, element.alias_name as string);
  }

  #aliasUpdate({ alias_label, old_alias_name, new_alias_name }: Wire): void {
    const holder = this.byAlias({ alias_label, alias_name: old_alias_name } as Wire);
    if (!holder || this.byAlias({ alias_label, alias_name: new_alias_name } as Wire)) return;
    holder.aliases.set(alias_label as string, new_alias_name as string);
  }

  #identify(element: Wire): void {
    const { external_id, ...selector } = element;
    const found = this.pick(selector);
    const owner = this.byExternalId(external_id as string);
    if (!found || found.externalId !== undefined) return;
    if (!owner) {
      found.externalId = external_id as string;
      found.updated = this.#clock;
      return;
    }
    this.#combine(found, owner);
  }

  #merge({ identifier_to_merge, identifier_to_keep }: Wire): void {
    const merged = this.pick(identifier_to_merge as Wire);
    const kept = this.pick(identifier_to_keep as Wire);
    if (merged && kept && merged !== kept) this.#combine(merged, kept);
  }

  #combine(merged: Card, kept: Card): void {
    kept.email ??= merged.email;
    kept.firstName ??= merged.firstName;
    for (const [name, value] of merged.custom) if (!kept.custom.has(name)) kept.custom.set(name, value);
    for (const [label, name] of merged.aliases) if (!kept.aliases.has(label)) kept.aliases.set(label, name);
    for (const [name, other] of merged.events) {
      const mine = kept.events.get(name);
      if (!mine) kept.events.set(name, other);
      else {
        mine.count += other.count;
        if (other.first < mine.first) mine.first = other.first;
        if (other.last > mine.last) mine.last = other.last;
      }
    }
    for (const [key, other] of merged.purchases) {
      const mine = kept.purchases.get(key) ?? { count: 0, revenue: 0 };
      kept.purchases.set(key, {
        count: mine.count + other.count,
        revenue: mine.revenue + other.revenue,
      });
    }
    kept.updated = this.#clock;
    this.#discard(merged);
  }

  #rename({ current_external_id, new_external_id }: Wire): string | undefined {
    const card = this.cards.find(({ externalId }) => externalId === current_external_id);
    if (!card) return 'no user goes by it';
    if (this.byExternalId(new_external_id as string)) return 'in use';
    card.deprecated.add(current_external_id as string);
    card.externalId = new_external_id as string;
    card.updated = this.#clock;
    return undefined;
  }

  #remove({ external_id }: Wire): string | undefined {
    const card = this.cards.find(({ deprecated }) => deprecated.has(external_id as string));
    card?.deprecated.delete(external_id as string);
    return card ? undefined : 'not deprecated';
  }

  #discard(card: Card): void {
    this.cards = this.cards.filter((other) => other !== card);
  }
}

function addEvent(card: Card, { name, time }: Wire): void {
  const at = time as string;
  const known = card.events.get(name as string);
  if (!known) card.events.set(name as string, { count: 1, first: at, last: at });
  else {
    known.count++;
    if (at < known.first) known.first = at;
    if (at > known.last) known.last = at;
  }
}

function addPurchase(card: Card, { product_id, currency, price, quantity }: Wire): void {
  const key = `${product_id} ${currency}`;
  const { count, revenue } = card.purchases.get(key) ?? { count: 0, revenue: 0 };
  const pieces = quantity as number;
  card.purchases.set(key, { count: count + pieces, revenue: revenue + pieces * (price as number) });
}

function changeAttributes(card: Card, element: Wire): void {
  for (const [name, value] of Object.entries(element)) {
    if (notData.has(name)) continue;
    if (name === 'email') {
      // Beside another identifier it is data.
      if (element.external_id !== undefined || element.user_alias !== undefined) card.email = value as string;
    } else if (name === 'first_name') card.firstName = value as string;
    else if (value === null) card.custom.delete(name);
    else if (typeof value === 'object') {
      const { inc } = value as { inc: number };
      card.custom.set(name, ((card.custom.get(name) as number | undefined) ?? 0) + inc);
    } else card.custom.set(name, value);
  }
}

const notData = new Set(['external_id', 'user_alias', '_update_existing_only']);
