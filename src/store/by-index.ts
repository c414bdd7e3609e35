/**
 * Session settings for the workers, whose statements all go from a set of keys to rows through an index. A plan
 * is made once per connection and statement; made while a table is new and has no statistics, it could read
 * the whole table for every batch to come. Where no index fits, Postgres reads the table all the same: a test looks
 * at every plan.
 */
export const everyStatementByIndex = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  plan_cache_mode: 'force_generic_plan',
  jit: 'off',
};
