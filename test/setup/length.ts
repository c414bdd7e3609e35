/**
 * `TEST_LENGTH=long`, as in `npm run test:all`: random and kill tests repeat more often, and every case runs.
 */
export const isLong = process.env.TEST_LENGTH === 'long';

/** Returns a number of repetitions or a duration: for the short form (`npm test`) or for the long one. */
export function lengthOf({ short, long }: { short: number; long: number }): number {
  return isLong ? long : short;
}
