import type pg from 'pg';
import { iso } from '../model/canonical.ts';
import { type Card, eventSums, purchaseSums } from '../model/card.ts';

/** Every profile of a workspace, with the number of events and purchases that refer to it, in one line of JSON each. */
const statement = `
  with recursive family as (
    select id as root, id from profiles where workspace_id = $1
    union all
    select family.root, merged_profiles.profile_id
    from family
    join merged_profiles on merged_profiles.workspace_id = $1 and merged_profiles.kept_id = family.id
  )
  select
    external_id as "externalId",
    array(select external_id from deprecated_external_ids
      where workspace_id = $1 and profile_id = profiles.id order by 1) as deprecated,
    array(select alias_label || ' ' || alias_name from user_aliases
      where workspace_id = $1 and profile_id = profiles.id order by 1) as aliases,
    email,
    first_name as "firstName",
    custom_attributes as custom,
    array(select name || ' ' || count || ' ' || ${iso('first')} || ' ' || ${iso('last')}
      from event_summaries where workspace_id = $1 and profile_id = profiles.id order by name) as events,
    array(select product_id || ' ' || currency || ' ' || count || ' ' || trim_scale(revenue) || ' ' ||
        ${iso('first')} || ' ' || ${iso('last')}
      from purchase_summaries where workspace_id = $1 and profile_id = profiles.id order by 1) as purchases,
    (select count(*)::integer from family
      join events on events.workspace_id = $1 and events.profile_id = family.id
      where family.root = profiles.id) as "eventRows",
    (select coalesce(sum(quantity), 0)::integer from family
      join purchases on purchases.workspace_id = $1 and purchases.profile_id = family.id
      where family.root = profiles.id) as "pieces"
  from profiles
  where workspace_id = $1`;

/** Returns the profiles of a workspace, one text each, sorted. */
export async function readStored(pool: pg.Pool, workspaceId: string): Promise<string[]> {
  const { rows } = await pool.query(statement, [workspaceId]);
  return rows
    .map((row) => {
      for (const list of [row.deprecated, row.aliases, row.events, row.purchases]) list.sort();
      return canonical({ ...row, custom: sorted(row.custom) });
    })
    .sort();
}

/** Returns the cards in the same form. */
export function describeCards(cards: Card[]): string[] {
  return cards
    .map((card) =>
      canonical({
        externalId: card.externalId ?? null,
        deprecated: [...card.deprecated].sort(),
        aliases: [...card.aliases].map(([label, name]) => `${label} ${name}`).sort(),
        email: card.columns.get('email') ?? null,
        firstName: card.columns.get('first_name') ?? null,
        custom: sorted(Object.fromEntries(card.custom)),
        events: [...eventSums(card)]
          .map(([name, { count, first, last }]) => `${name} ${count} ${first} ${last}`)
          .sort(),
        purchases: [...purchaseSums(card)]
          .map(([key, { count, revenue, first, last }]) => `${key} ${count} ${revenue} ${first} ${last}`)
          .sort(),
        eventRows: card.events.length,
        pieces: card.purchases.reduce((sum, { quantity }) => sum + quantity, 0),
      }),
    )
    .sort();
}

function canonical(value: Record<string, unknown>): string {
  return JSON.stringify(value);
}

function sorted(value: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
