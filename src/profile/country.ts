import { createRequire } from 'node:module';
import countries from 'i18n-iso-countries/index.js';

// Only English: the main entry of the package reads 80 languages at start.
countries.registerLocale(createRequire(import.meta.url)('i18n-iso-countries/langs/en.json'));

/** The longest English name has fewer characters. */
const MAX_LENGTH = 100;
const MARKS = /\p{M}+/gu;
const SEPARATORS = /[^a-z0-9]+/g;

const codes = new Set(Object.keys(countries.getAlpha2Codes()));
const codeByName = new Map<string, string>();
for (const [code, names] of Object.entries(countries.getNames('en', { select: 'all' }))) {
  for (const name of names) codeByName.set(fold(name), code);
}
for (const [alpha3, alpha2] of Object.entries(countries.getAlpha3Codes())) {
  codeByName.set(fold(alpha3), alpha2);
}

/**
 * ISO 3166-1 alpha-2 code of a country given by its code (two or three letters) or English name in any
 * case; null when there is no such country.
 */
export function normalizeCountry(text: string): string | null {
  if (codes.has(text)) return text;
  if (text.length > MAX_LENGTH) return null;
  const code = text.toUpperCase();
  if (codes.has(code)) return code;
  return codeByName.get(fold(text)) ?? null;
}

/** Names meet without case, accents and punctuation. */
function fold(name: string): string {
  return name.normalize('NFD').replace(MARKS, '').toLowerCase().replace(SEPARATORS, ' ').trim();
}
