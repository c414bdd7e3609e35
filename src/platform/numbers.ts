/**
 * A whole number with commas between its thousands, as the texts of this service write it. `toLocaleString` would load
 * tables of all languages at the start of each process.
 */
export function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}
