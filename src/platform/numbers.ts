/**
 * A whole number with commas between its thousands, as the texts of this service write it. `toLocaleString` would load
 * tables of all languages at the start of each process.
 */
export function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** As `0-7, 9`: numbers in order, those that follow each other as a range. */
export function rangesOf(numbers: number[]): string {
  const ranges: [first: number, last: number][] = [];
  for (const number of numbers) {
    const range = ranges.at(-1);
    if (range && range[1] === number - 1) range[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(', ');
}
