import { createRequire } from 'node:module';
import countries from 'i18n-iso-countries/index.js';

// Registers only English, because the main entry of the package reads 80 languages at start.
countries.registerLocale(createRequire(import.meta.url)('i18n-iso-countries/langs/en.json'));

/** Maximum length of an English name. */
const MAX_COUNTRY_LENGTH = 100;
const MARKS = /\p{M}+/gu;
/** Characters that may be written or omitted within a word, for example in `U.K.` and `Cote d'Ivoire`. */
const WITHIN_WORDS = /[.'\u2019\u02bb*]/g;
const BETWEEN_WORDS = /[^\p{L}\p{N}]+/u;

/** Short names of ISO 3166-1, and former and common names, that both CLDR and i18n-iso-countries lack. */
const FURTHER_NAMES: Readonly<Record<string, readonly string[]>> = {
  BO: ['Bolivia (Plurinational State of)'],
  CD: ['DR Congo', 'DRC'],
  CV: ['Cabo Verde'],
  GB: ['United Kingdom of Great Britain and Northern Ireland'],
  KP: ["Korea (the Democratic People's Republic of)"],
  LA: ['Lao PDR'],
  MK: ['Macedonia'],
  MM: ['Burma'],
  MO: ['Macau'],
  NL: ['Holland'],
  SH: ['Saint Helena, Ascension and Tristan da Cunha'],
  SZ: ['Swaziland'],
  TL: ['East Timor'],
  VA: ['Holy See', 'Vatican'],
  VE: ['Venezuela (Bolivarian Republic of)'],
  VN: ['Viet Nam'],
};

const alpha2Codes = Object.keys(countries.getAlpha2Codes());
const codes = new Set(alpha2Codes);
const codeByName = new Map<string, string>();

/** Adds a name of a country unless an earlier list has used the name for another country. */
function addName(name: string, code: string): void {
  const key = fold(name);
  if (!codeByName.has(key)) codeByName.set(key, code);
}

// ISO 3166-1 calls CG "Congo". i18n-iso-countries uses this name for CD as well, so it must be added first.
addName('Congo', 'CG');
for (const style of ['long', 'short'] as const) {
  const cldr = new Intl.DisplayNames(['en'], { type: 'region', style, fallback: 'none' });
  for (const code of alpha2Codes) {
    const name = cldr.of(code);
    if (name !== undefined) addName(name, code);
  }
}
for (const [code, names] of Object.entries(countries.getNames('en', { select: 'all' }))) {
  for (const name of names) addName(name, code);
}
for (const [code, names] of Object.entries(FURTHER_NAMES)) for (const name of names) addName(name, code);
for (const [alpha3, alpha2] of Object.entries(countries.getAlpha3Codes())) addName(alpha3, alpha2);
for (const code of alpha2Codes) addName(code, code);

/**
 * Returns the ISO 3166-1 alpha-2 code of a country, given its code of two or three letters or its English name in any
 * case. Returns undefined if no country has the code or name. Names are those of CLDR, i18n-iso-countries and the short
 * names of ISO.
 */
export function normalizeCountry(text: string): string | undefined {
  if (codes.has(text)) return text;
  return text.length > MAX_COUNTRY_LENGTH ? undefined : codeByName.get(fold(text));
}

/**
 * Returns the lookup key of a name: its words in lower case, sorted, without accents, articles and punctuation. So
 * `Korea (the Republic of)` and `Republic of Korea` have the same key. Letters of other scripts are kept, so names in
 * other languages match no key.
 */
function fold(name: string): string {
  const plain = name.normalize('NFKD').replace(MARKS, '').toLowerCase();
  const words = plain.replaceAll('&', ' and ').replace(WITHIN_WORDS, '').split(BETWEEN_WORDS);
  return words
    .filter((word) => word !== '' && word !== 'the')
    .sort()
    .join(' ');
}

/** Currency codes that clients use although some are no longer in ISO 4217, followed by newer codes. */
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

/** Without the `u` flag only ASCII letters match, so no other letter becomes ASCII in upper case. */
const CURRENCY_CODE = /^[a-z]{3}$/i;

/** Returns the ISO 4217 code in upper case, or undefined if the text, in any case, is not a currency code. */
export function normalizeCurrency(text: string): string | undefined {
  if (CURRENCIES.has(text)) return text;
  if (!CURRENCY_CODE.test(text)) return undefined;
  const code = text.toUpperCase();
  return CURRENCIES.has(code) ? code : undefined;
}

/** The supported languages: ISO 639-1 codes, and ISO 639-2 codes of languages without one. */
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

/** Maximum length of a tag in characters. BCP 47 requires 35. */
const MAX_LANGUAGE_LENGTH = 35;
/**
 * A language tag, or a POSIX locale such as `pt_BR.UTF-8` or `de_DE@euro`. Without the `u` flag only ASCII letters
 * match.
 */
const LANGUAGE_TAG = /^([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*(?:[.@][a-z0-9.@_-]+)?$/i;

/**
 * Returns the code of a supported language in lower case, or undefined. Region and script are dropped: `pt-BR` and
 * `pt_BR` become `pt`.
 */
export function normalizeLanguage(text: string): string | undefined {
  if (LANGUAGES.has(text)) return text;
  if (text.length > MAX_LANGUAGE_LENGTH) return undefined;
  const language = LANGUAGE_TAG.exec(text)?.[1]?.toLowerCase();
  return language !== undefined && LANGUAGES.has(language) ? language : undefined;
}
