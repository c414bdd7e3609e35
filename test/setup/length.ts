/** `TEST_LENGTH=long`, as in `npm run test:all`: what is random or killed is repeated more often, and nothing is left out. */
export const isLong = process.env.TEST_LENGTH === 'long';

/** How often, or how long: in the short form of a test, which is that of `npm test`, and in the long one. */
export function lengthOf({ short, long }: { short: number; long: number }): number {
  return isLong ? long : short;
}
