import type { MergeRule } from '../../profile/merge-rules.ts';

/**
 * The SQL of a rule for one column, `stay` excepted, which changes nothing. `least` and `greatest` pass over null.
 *
 * @param kept the row that stays, as a table name or alias
 * @param merged the row that goes
 */
export function mergedColumn(
  rule: Exclude<MergeRule, 'stay'>,
  column: string,
  kept: string,
  merged: string,
): string {
  const [mine, other] = [`${kept}.${column}`, `${merged}.${column}`];
  switch (rule) {
    case 'keep':
      return `coalesce(${mine}, ${other})`;
    case 'sum':
      return `${mine} + ${other}`;
    case 'earliest':
      return `least(${mine}, ${other})`;
    case 'latest':
    case 'newest':
      return `greatest(${mine}, ${other})`;
  }
}

/** `set` clauses for all columns of a table's rules, `stay` and those of `except` left out. */
export function mergedColumns(
  rules: Record<string, MergeRule>,
  kept: string,
  merged: string,
  except: readonly string[] = [],
): string {
  return Object.entries(rules)
    .filter(([column, rule]) => rule !== 'stay' && !except.includes(column))
    .map(
      ([column, rule]) =>
        `${column} = ${mergedColumn(rule as Exclude<MergeRule, 'stay'>, column, kept, merged)}`,
    )
    .join(',\n    ');
}
