/** What parsing takes on the quiet machine of the table in docs/evidence/reliability.md, in ms: the median of nine. */
const REFERENCE_MS = 40;
const LOOKS = 9;

/** A machine that is slower still says nothing. */
const SLOWEST = 2;

const TEXT = `[${'{},'.repeat(350_000)}0]`;

/**
 * How many times as long the same work takes on this machine, now, as on the one of the table: machines that share a
 * host have slow quarters of an hour that no load of their own explains.
 *
 * @returns 1 to 2
 */
export function paceNow(): number {
  const took = Array.from({ length: LOOKS }, () => {
    const started = performance.now();
    JSON.parse(TEXT);
    return performance.now() - started;
  }).sort((one, other) => one - other);
  return Math.min(SLOWEST, Math.max(1, took[Math.floor(LOOKS / 2)]! / REFERENCE_MS));
}
