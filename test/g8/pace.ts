/** Median of nine parses on the machine of the table in docs/evidence/reliability.md, without other load, in ms. */
const REFERENCE_MS = 40;
const LOOKS = 9;

/** Upper bound of the factor: a limit that is more than twice as long would not prove the guarantee. */
const SLOWEST = 2;

const TEXT = `[${'{},'.repeat(350_000)}0]`;

/**
 * Measures how many times longer the same work takes now than on the machine of the table. Virtual machines that share
 * a host can be slow for a quarter of an hour without any load of their own.
 *
 * @returns a factor from 1 to 2
 */
export function paceNow(): number {
  const took = Array.from({ length: LOOKS }, () => {
    const started = performance.now();
    JSON.parse(TEXT);
    return performance.now() - started;
  }).sort((one, other) => one - other);
  return Math.min(SLOWEST, Math.max(1, took[Math.floor(LOOKS / 2)]! / REFERENCE_MS));
}
