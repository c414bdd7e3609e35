/** What is compared: a row over another row of the same round. */
export const ratios: readonly (readonly [row: string, over: string])[] = [
  ['ours-75', 'naive-75'],
  ['ours-1', 'naive-1'],
  ['ours-75', 'copy'],
  ['ours-1', 'bare-http'],
  ['attributes-10', 'jsonb-10'],
  ['attributes-100', 'jsonb-100'],
  ['attributes-400', 'jsonb-400'],
  ['embedded-75', 'ours-75'],
  ['two-workers-75', 'ours-75'],
  ['two-lanes-75', 'naive-75'],
  ['two-lanes-75', 'copy'],
  ['two-lanes-75', 'ours-75'],
  ['pinned-2-workers', 'pinned-1-worker'],
  ['ours-75-identity', 'ours-75'],
];
