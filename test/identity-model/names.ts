import { pick } from '../../tools/load/random.ts';
import type { Wire } from '../model/card.ts';
import type { IdentityModel } from '../model/identity-model.ts';

type Random = () => number;

/** Names of each kind in one circle of users. */
const IDS = 6;
const NAMES = 5;
const LABELS = ['crm', 'device'];
const EMAILS = 3;

/** Selection of the names of one circle of users. */
export interface Names {
  externalId(): string;
  /** An alias that a user may have. */
  alias(): Wire;
  /** An unused alias. */
  newAlias(): Wire;
  email(): string;
  renaming(): Wire;
  /** Whether users are addressed by email, and deprecated ids removed. */
  emails: boolean;
  removes: boolean;
}

/** A few names that users reuse. For one lane, whose order is total. */
export function fewNames(random: Random, circle: number): Names {
  const externalId = () => `c${circle}-x${Math.floor(random() * IDS)}`;
  const alias = () => ({
    alias_label: pick(random, LABELS),
    alias_name: `c${circle}-n${Math.floor(random() * NAMES)}`,
  });
  return {
    externalId,
    alias,
    newAlias: alias,
    email: () => `c${circle}-e${Math.floor(random() * EMAILS)}@example.com`,
    renaming() {
      const current_external_id = externalId();
      let new_external_id = externalId();
      while (new_external_id === current_external_id) new_external_id = externalId();
      return { current_external_id, new_external_id };
    },
    emails: true,
    removes: true,
  };
}

/**
 * Each user has one name at a time, which changes only by operations that contain the old and the new name.
 * With several
 * lanes this is the guarantee of an order per identifier: two operations that name a user in two ways are not
 * ordered.
 */
export function oneNameEach(random: Random, circle: number, model: IdentityModel): Names {
  let made = 0;
  const ids = Array.from({ length: IDS }, (_, number) => `c${circle}-x${number}`);
  const newAlias = () => ({ alias_label: pick(random, LABELS), alias_name: `c${circle}-n${made++}` });
  return {
    externalId: () => pick(random, ids),
    newAlias,
    alias() {
      const prefix = `c${circle}-`;
      const anonymous = model.cards
        .filter(({ externalId, aliases }) => externalId === undefined && aliases.size === 1)
        .flatMap(({ aliases }) => [...aliases])
        .filter(([, name]) => name.startsWith(prefix));
      if (anonymous.length === 0 || random() < 0.4) return newAlias();
      const [alias_label, alias_name] = pick(random, anonymous);
      return { alias_label, alias_name };
    },
    email: () => '',
    renaming() {
      const position = Math.floor(random() * ids.length);
      const current_external_id = ids[position]!;
      const new_external_id = `c${circle}-r${made++}`;
      ids[position] = new_external_id;
      return { current_external_id, new_external_id };
    },
    emails: false,
    removes: false,
  };
}
