/**
 * How an address that several profiles have is narrowed to one of them. Each value in its turn keeps those of the
 * profiles that are left which have an external id, have none, or were updated last or longest ago.
 */
export const prioritizations = [
  'identified',
  'unidentified',
  'most_recently_updated',
  'least_recently_updated',
] as const;
export type Prioritization = (typeof prioritizations)[number];
