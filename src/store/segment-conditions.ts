import {
  type Comparison,
  type Definition,
  type Happening,
  textAttributes,
  timeAttributes,
} from '../profile/segment.ts';
import { iso } from './database.ts';

/** A condition on a row of `profiles`, and the values of its parameters in order. */
interface SqlCondition {
  text: string;
  values: unknown[];
}

/** Matches times in custom attributes. They are ISO 8601 texts in UTC, which can be compared bytewise. */
const LOOKS_LIKE_TIME = String.raw`'^\d{4}-\d\d-\d\dT\d\d:\d\d:'`;

/**
 * Converts a validated filter to a condition on `profiles` in which every value is a parameter. Each table is
 * read by the key that starts with the workspace and the user; `offset 0` keeps Postgres from scanning a
 * whole table instead. The condition is true or false, never null, so that it can be negated. The parameter `$1` of
 * the surrounding statement is the workspace, as a distributed Postgres needs it for each table.
 *
 * @param taken number of parameters that the surrounding statement has before these
 */
export function conditionOf(definition: Definition, taken: number): SqlCondition {
  const values: unknown[] = [];
  const parameter = (value: unknown, type: string) => {
    values.push(value);
    return `$${taken + values.length}::${type}`;
  };
  return { text: sqlOf(definition), values };

  function sqlOf(filter: Definition): string {
    if ('all' in filter) return filter.all.length === 0 ? 'true' : `(${filter.all.map(sqlOf).join(' and ')})`;
    if ('any' in filter) return filter.any.length === 0 ? 'false' : `(${filter.any.map(sqlOf).join(' or ')})`;
    if ('none' in filter)
      return filter.none.length === 0 ? 'true' : `not (${filter.none.map(sqlOf).join(' or ')})`;
    if ('attribute' in filter) return standard(filter.attribute, filter);
    if ('custom_attribute' in filter) return custom([filter.custom_attribute].flat(), filter);
    if ('email_subscription' in filter)
      return `${emailState} = ${parameter(filter.email_subscription, 'text')}`;
    if ('push_subscription' in filter)
      return `coalesce(profiles.push_subscribe, 'subscribed') = ${parameter(filter.push_subscription, 'text')}`;
    if ('subscription_group' in filter) return inGroup(filter.subscription_group, filter.state);
    if ('event' in filter)
      return didHappen(
        `select event_summaries.count, event_summaries.first, event_summaries.last
          from event_summaries
          where event_summaries.workspace_id = $1::uuid
            and event_summaries.profile_id = profiles.id
            and event_summaries.name = ${parameter(filter.event, 'text')}`,
        filter,
      );
    const product =
      'purchase' in filter ? `and purchase_summaries.product_id = ${parameter(filter.purchase, 'text')}` : '';
    return didHappen(
      `select sum(purchase_summaries.count) as count, min(purchase_summaries.first) as first,
            max(purchase_summaries.last) as last
          from purchase_summaries
          where purchase_summaries.workspace_id = $1::uuid
            and purchase_summaries.profile_id = profiles.id ${product}
          having count(*) > 0`,
      filter,
    );
  }

  function standard(name: string, comparison: Comparison): string {
    const column = `profiles.${name}`;
    if (timeAttributes.includes(name))
      return every(timeTests(column, 'timestamptz', comparison), comparison, column);
    if (!textAttributes.includes(name)) throw new Error(`there is no attribute ${name}`);
    const tests = [
      ...('equals' in comparison ? [`${column} = ${parameter(String(comparison.equals), 'text')}`] : []),
      ...(comparison.in ? [`${column} = any(${parameter(comparison.in.map(String), 'text[]')})`] : []),
      ...never(comparison, ['contains', 'more_than', 'less_than']),
      ...timeTests(
        `(case when ${column} ~ '^\\d{4}-\\d\\d-\\d\\d' then ${column} end) collate "C"`,
        'text',
        comparison,
      ),
    ];
    return every(tests, comparison, column);
  }

  function custom(path: string[], comparison: Comparison): string {
    const value = `(profiles.custom_attributes #> ${parameter(path, 'text[]')})`;
    const text = `(${value} #>> '{}')`;
    const numberValue = `(case when jsonb_typeof(${value}) = 'number' then ${text}::numeric end)`;
    const moment = `(case when jsonb_typeof(${value}) = 'string' and ${text} ~ ${LOOKS_LIKE_TIME} then ${text} end) collate "C"`;
    const json = (one: unknown) => parameter(JSON.stringify(one), 'jsonb');
    const tests = [
      ...('equals' in comparison ? [`${value} = ${json(comparison.equals)}`] : []),
      ...(comparison.in ? [`${value} in (select jsonb_array_elements(${json(comparison.in)}))`] : []),
      ...('contains' in comparison
        ? [`(case when jsonb_typeof(${value}) = 'array' then ${value} @> ${json([comparison.contains])} end)`]
        : []),
      ...('more_than' in comparison
        ? [`${numberValue} > ${parameter(comparison.more_than, 'numeric')}`]
        : []),
      ...('less_than' in comparison
        ? [`${numberValue} < ${parameter(comparison.less_than, 'numeric')}`]
        : []),
      ...timeTests(moment, 'text', comparison),
    ];
    return every(tests, comparison, value);
  }

  /** Returns a false condition if the comparison uses operators that do not apply to this kind of value. */
  function never(comparison: Comparison, words: (keyof Comparison)[]): string[] {
    return words.some((word) => word in comparison) ? ['false'] : [];
  }

  function timeTests(
    value: string,
    type: 'text' | 'timestamptz',
    { before, after, in_last_days }: Comparison,
  ): string[] {
    const since = (days: number) => {
      const moment = `now() - make_interval(days => ${parameter(days, 'integer')})`;
      return type === 'timestamptz' ? moment : iso(`(${moment})`);
    };
    return [
      ...(before === undefined ? [] : [`${value} < ${parameter(before, type)}`]),
      ...(after === undefined ? [] : [`${value} > ${parameter(after, type)}`]),
      ...(in_last_days === undefined ? [] : [`${value} >= ${since(in_last_days)}`]),
    ];
  }

  function every(tests: string[], { exists }: Comparison, value: string): string {
    const all = exists === undefined ? tests : [...tests, `${value} is ${exists ? 'not null' : 'null'}`];
    return all.length === 0 ? 'false' : `coalesce(${all.join(' and ')}, false)`;
  }

  /**
   * Condition on the state of the address in the group's channel. The profile's own state applies only while
   * it has no such address.
   */
  function inGroup(id: string, state: string): string {
    const isEmail = `subscription_groups.channel = 'email'`;
    const phone = 'case when profiles.phone_valid then profiles.phone end';
    const address = `(case when ${isEmail} then profiles.email else ${phone} end)`;
    return `exists (
      select
      from subscription_groups
      join subscription_states on subscription_states.workspace_id = $1::uuid
        and subscription_states.subject_kind =
          case when ${address} is null then 'profile' when ${isEmail} then 'email' else 'phone' end
        and subscription_states.subject = coalesce(${address}, profiles.id::text)
        and subscription_states.subscription_group_id = subscription_groups.id
      where subscription_groups.workspace_id = $1::uuid
        and subscription_groups.id = ${parameter(id, 'uuid')}
        and subscription_states.state = ${parameter(state, 'text')}
      offset 0)`;
  }

  function didHappen(summary: string, happening: Happening): string {
    const { count_at_least = 0, count_at_most, last_in_days } = happening;
    const moments = (
      [
        ['first', '<', happening.first_before],
        ['first', '>', happening.first_after],
        ['last', '<', happening.last_before],
        ['last', '>', happening.last_after],
      ] as const
    ).flatMap(([end, than, time]) =>
      time === undefined ? [] : [`done.${end} ${than} ${parameter(time, 'timestamptz')}`],
    );
    if (last_in_days !== undefined)
      moments.push(`done.last >= now() - make_interval(days => ${parameter(last_in_days, 'integer')})`);
    const hasNever = 'count_at_least' in happening || count_at_most !== undefined;
    const maxCount =
      count_at_most === undefined ? [] : [`done.count <= ${parameter(count_at_most, 'bigint')}`];
    // Without a count, it must have happened. With a count, an activity that never happened counts as 0 and
    // has no times.
    const minCount = [`done.count >= ${parameter(hasNever ? count_at_least : 1, 'bigint')}`];
    const did = `exists (select from (${summary}) as done where ${[...minCount, ...maxCount, ...moments].join(' and ')} offset 0)`;
    const zeroCounts = hasNever && count_at_least === 0 && moments.length === 0;
    return zeroCounts ? `(${did} or not exists (${summary} offset 0))` : did;
  }
}

const emailState = `coalesce(
      case when profiles.email is null then profiles.email_subscribe else (
        select email_addresses.state
        from email_addresses
        where email_addresses.workspace_id = $1::uuid and email_addresses.email = profiles.email
      ) end, 'subscribed')`;
