import { createRequire } from 'node:module';
import countries from 'i18n-iso-countries/index.js';

// Only English: the main entry of the package reads 80 languages at start.
countries.registerLocale(createRequire(import.meta.url)('i18n-iso-countries/langs/en.json'));

/** The longest English name has fewer characters. */
const MAX_COUNTRY_LENGTH = 100;
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
  if (text.length > MAX_COUNTRY_LENGTH) return null;
  const code = text.toUpperCase();
  if (codes.has(code)) return code;
  return codeByName.get(fold(text)) ?? null;
}

/** Names meet without case, accents and punctuation. */
function fold(name: string): string {
  return name.normalize('NFD').replace(MARKS, '').toLowerCase().replace(SEPARATORS, ' ').trim();
}

/** Codes of clients in the field, of which some are no longer in ISO 4217, and the codes that came since. */
const FURTHER_CODES = `
  AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTC BTN BWP
  BYR BZD CAD CDF CHF CLF CLP CNY COP CRC CUC CUP CVE CZK DJF DKK DOP DZD EEK EGP ERN ETB EUR FJD FKP
  GBP GEL GGP GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS IMP INR IQD IRR ISK JEP JMD JOD JPY
  KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LTL LVL LYD MAD MDL MGA MKD MMK MNT MOP MRO
  MTL MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB
  RWF SAR SBD SCR SDG SEK SGD SHP SLL SOS SRD STD SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH
  UGX USD UYU UZS VEF VND VUV WST XAF XAG XAU XCD XDR XOF XPD XPF XPT YER ZAR ZMK ZMW ZWL
  BYN MRU SLE STN UYW VED VES XCG ZWG
`
  .trim()
  .split(/\s+/);

const CURRENCIES = new Set([...Intl.supportedValuesOf('currency'), ...FURTHER_CODES]);

/** The ISO 4217 code in upper case, or undefined for what is no currency. Case has no meaning in a code. */
export function normalizeCurrency(text: string): string | undefined {
  if (CURRENCIES.has(text)) return text;
  if (text.length !== 3) return undefined;
  const code = text.toUpperCase();
  return CURRENCIES.has(code) ? code : undefined;
}

/** ISO 639-1 where it has a code, else 639-2: the languages that messages can be chosen by. */
const LANGUAGES = new Set(
  `
  en af agq ak sq am ar hy as ay az ksf bas eu be bem bn bez bs br bg my km ca tzm chr cgg zh swc kw
  hr cs da dav dua nl dz guz et eo ewo ee fo fa fil fi fr gl lg ka de gsw el kl gn gu ha haw he hi hu
  is ig id iu ga it jv ja dyo kab kln kam kn ks kk ebu ki rw ky ko ku lo la lv ln lt lu lb luo luy
  jmc mk mg ms ml mt gv mr mas mer mo mn mfe mua naq ne nd nb nus nyn nn om ps ff pl pt pa qu rm ro
  rof ru rwk saq se sbp sa gd sr seh ksb sn ii sd si sk sl so es sw sv shi tl tg ta twq tt te teo th
  bo ti to tr tk ug uk ur uz vai vi vun cy xh yav yi yo dje zu
`
    .trim()
    .split(/\s+/),
);

/** The longest tag that is looked at; BCP 47 asks for 35 characters. */
const MAX_LANGUAGE_LENGTH = 35;
const SUBTAG = /[-_]/;

/**
 * The code of a supported language, lower-case, or undefined. A region or script is dropped: `pt-BR` and
 * `pt_BR` are `pt`.
 */
export function normalizeLanguage(text: string): string | undefined {
  if (LANGUAGES.has(text)) return text;
  if (text.length > MAX_LANGUAGE_LENGTH) return undefined;
  const end = text.search(SUBTAG);
  const language = (end === -1 ? text : text.slice(0, end)).toLowerCase();
  return LANGUAGES.has(language) ? language : undefined;
}
