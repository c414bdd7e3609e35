import type { Prioritization } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { type Card, copyOf, type Wire } from './card.ts';
import { SequentialModel, type TrackKind } from './sequential-model.ts';

/** Kind of an element of a request. */
export type Kind =
  | TrackKind
  | 'alias_new'
  | 'alias_update'
  | 'identify'
  | 'merge'
  | 'delete'
  | 'rename'
  | 'remove';

/** The sequential model with the operations that change the names of users, applied one by one as well. */
export class IdentityModel extends SequentialModel {
  /** Returns an independent copy of the users. */
  copy(): IdentityModel {
    const other = new IdentityModel();
    other.cards.push(...this.cards.map(copyOf));
    for (const [address, state] of this.addressStates) other.addressStates.set(address, state);
    other.clock = this.clock;
    return other;
  }

  /** @returns the reason if a rename or a remove is rejected */
  override apply(kind: Kind, element: Wire): string | undefined {
    if (kind === 'attributes' || kind === 'events' || kind === 'purchases') {
      super.apply(kind, element);
      return undefined;
    }
    this.clock++;
    if (kind === 'rename') return this.#rename(element);
    if (kind === 'remove') return this.#remove(element);
    if (kind === 'alias_new') this.#aliasNew(element);
    else if (kind === 'alias_update') this.#aliasUpdate(element);
    else if (kind === 'identify') this.#identify(element);
    else if (kind === 'merge') this.#merge(element);
    else {
      const card = this.#pick(element);
      if (card) this.#discard(card);
    }
    return undefined;
  }

  /** Returns the user of an identifier object: for an address, the one that `prioritization` selects. */
  #pick({ email, prioritization, ...identifier }: Wire): Card | undefined {
    if (email === undefined) return this.find(identifier);
    let left = this.cards
      .filter(({ columns }) => columns.get('email') === email)
      .sort((a, b) => a.updated - b.updated);
    for (const priority of prioritization as Prioritization[]) {
      if (priority === 'identified') left = left.filter(({ externalId }) => externalId !== undefined);
      if (priority === 'unidentified') left = left.filter(({ externalId }) => externalId === undefined);
      if (priority === 'most_recently_updated') left = left.slice(-1);
      if (priority === 'least_recently_updated') left = left.slice(0, 1);
    }
    return left.length === 1 ? left[0] : undefined;
  }

  /** A used alias stays with its user, and a user keeps the alias that it has under a label. */
  #aliasNew({ external_id, alias_label, alias_name }: Wire): void {
    const user_alias = { alias_label: alias_label!, alias_name: alias_name! };
    if (this.find({ user_alias })) return;
    if (external_id === undefined) {
      this.create({ user_alias });
      return;
    }
    const owner = this.find({ external_id });
    if (owner && !owner.aliases.has(alias_label as string)) {
      owner.aliases.set(alias_label as string, alias_name as string);
    }
  }

  #aliasUpdate({ alias_label, old_alias_name, new_alias_name }: Wire): void {
    const named = (alias_name: Json) => this.find({ user_alias: { alias_label: alias_label!, alias_name } });
    const holder = named(old_alias_name!);
    if (holder && !named(new_alias_name!))
      holder.aliases.set(alias_label as string, new_alias_name as string);
  }

  /** Only a user without an external id is identified. */
  #identify({ external_id, ...selector }: Wire): void {
    const result = this.#pick(selector);
    if (!result || result.externalId !== undefined) return;
    const owner = this.find({ external_id: external_id! });
    if (owner) this.#combine(result, owner);
    else {
      result.externalId = external_id as string;
      result.updated = this.clock;
    }
  }

  #merge({ identifier_to_merge, identifier_to_keep }: Wire): void {
    const merged = this.#pick(identifier_to_merge as Wire);
    const kept = this.#pick(identifier_to_keep as Wire);
    if (merged && kept && merged !== kept) this.#combine(merged, kept);
  }

  /**
   * Gives the kept user missing values, and the events and purchases. Deprecated external ids disappear with
   * the merged user.
   * Data that no generator gives to merged users is omitted: tokens, states, and columns with another rule.
   */
  #combine(merged: Card, kept: Card): void {
    for (const part of ['columns', 'custom', 'aliases'] as const) addMissing(merged[part], kept[part]);
    kept.events = [...kept.events, ...merged.events];
    kept.purchases = [...kept.purchases, ...merged.purchases];
    kept.updated = this.clock;
    this.#discard(merged);
  }

  #rename({ current_external_id, new_external_id }: Wire): string | undefined {
    const card = this.cards.find(({ externalId }) => externalId === current_external_id);
    if (!card) return 'no user goes by it';
    if (this.find({ external_id: new_external_id! })) return 'in use';
    card.deprecated.add(current_external_id as string);
    card.externalId = new_external_id as string;
    card.updated = this.clock;
    return undefined;
  }

  #remove({ external_id }: Wire): string | undefined {
    const card = this.cards.find(({ deprecated }) => deprecated.has(external_id as string));
    card?.deprecated.delete(external_id as string);
    return card ? undefined : 'not deprecated';
  }

  #discard(card: Card): void {
    this.cards.splice(this.cards.indexOf(card), 1);
  }
}

function addMissing(from: ReadonlyMap<string, Json>, to: Map<string, Json>): void {
  for (const [name, value] of from) if (!to.has(name)) to.set(name, value);
}
