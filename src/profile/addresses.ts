import { createRequire } from 'node:module';
import { PhoneNumber, parsePhoneNumberFromString } from 'libphonenumber-js/core';
import metadata from 'libphonenumber-js/min/metadata';
import { LRUCache } from 'lru-cache';
import isEmail from 'validator/lib/isEmail.js';
import { MAX_CHARACTERS } from './values.ts';

/** The CommonJS form of the package, which loads four times as fast as its ES form. */
const { parse } = createRequire(import.meta.url)('tldts') as typeof import('tldts');

/** Maximum length of the local part and of the host in bytes (RFC 5321). */
const MAX_LOCAL = 64;
const MAX_HOST = 253;

/**
 * A host with at least two labels. Without the `u` flag only ASCII letters match, so no look-alike becomes ASCII in
 * lower case.
 */
const HOST = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i;
/** The usual local part, a subset of `LOCAL` and of the rules of `validator`. Without the `u` flag, as in `HOST`. */
const PLAIN_LOCAL = /^[a-z0-9_-]+(?:[.+][a-z0-9_-]+)*$/i;
/** Letters, digits, `_` and `-` of any script, and inside also `. + ' & # /`. */
const LOCAL = /^[\p{L}\p{N}_-](?:[\p{L}\p{M}\p{N}_.+'&#/-]*[\p{L}\p{M}\p{N}_-])?$/u;
/** The Kelvin sign. Its lower-case form is the ASCII letter k, which would be another address. */
const KELVIN_SIGN = '\u212a';

/** A dot-atom of RFC 5322 §3.2.3, with letters and digits of any script (RFC 6531). */
const DOT_ATOM = /^[\p{L}\p{M}\p{N}!#$%&'*+\-/=?^_`{|}~]+(?:\.[\p{L}\p{M}\p{N}!#$%&'*+\-/=?^_`{|}~]+)*$/u;

/** Matches whole labels, because other names may contain a provider's name, for example deliver.com contains "live". */
const MICROSOFT_HOST = /(?:^|\.)(?:msn|hotmail|outlook|live)\./;
const MICROSOFT_LOCAL = /^\w[\w-]*(?:\.[\w-]+)*$/;
/** A host that ends like an IPv4 address. */
const NUMERIC_END = /\.[0-9]+$/;
const GMAIL_HOST = /(?:^|\.)(?:gmail|googlemail)\.com$/;

const ICANN_ONLY = { allowPrivateDomains: false, extractHostname: false, detectIp: false } as const;

/**
 * Returns the lower-case form of an email address, or undefined if it is not valid. Surrounding white space is removed.
 * White space inside is not valid. The host must be ASCII (punycode) and end in a top-level domain of ICANN's list.
 */
export function normalizeEmail(text: string): string | undefined {
  const { address, local, host } = split(text) ?? split(text.trim()) ?? {};
  if (address === undefined || !isAllowedAt(host!, local!)) return undefined;
  return parse(host!, ICANN_ONLY).isIcann ? address : undefined;
}

/**
 * Returns the lower-case form of a console account's address, or undefined if it is not valid. The company assigns
 * these addresses itself, so only the rules of RFC 5322 apply: the host may belong to a private network
 * (`corp.internal`), and the local part may be any dot-atom, for example
 * `guest_example.com#EXT#@contoso.onmicrosoft.com`.
 */
export function normalizeStaffEmail(text: string): string | undefined {
  const at = text.lastIndexOf('@');
  const [local, host] = [text.slice(0, Math.max(at, 0)), text.slice(at + 1)];
  if (host.length > MAX_HOST || !HOST.test(host) || NUMERIC_END.test(host)) return undefined;
  if (Buffer.byteLength(local) > MAX_LOCAL || !DOT_ATOM.test(local)) return undefined;
  return text.toLowerCase();
}

/** Splits an address in lower case. Returns undefined if it does not have the general form of an address. */
function split(text: string): { address: string; local: string; host: string } | undefined {
  const at = text.lastIndexOf('@');
  if (at < 1 || at > MAX_LOCAL || text.length - at - 1 > MAX_HOST) return undefined;
  if (!HOST.test(text.slice(at + 1))) return undefined;
  const address = text.toLowerCase();
  const end = address.lastIndexOf('@');
  const local = address.slice(0, end);
  // The general check takes longer than all other checks, and a plain local part always passes it.
  if (!PLAIN_LOCAL.test(text.slice(0, at))) {
    if (text.includes(KELVIN_SIGN) || !LOCAL.test(local) || !isEmail.default(address)) return undefined;
  }
  return { address, local, host: address.slice(end + 1) };
}

/** Returns whether a large provider allows the local part. For other hosts, every local part is allowed. */
function isAllowedAt(host: string, local: string): boolean {
  const plus = local.indexOf('+');
  const user = plus === -1 ? local : local.slice(0, plus);
  if (GMAIL_HOST.test(host)) return user.length >= 2;
  if (MICROSOFT_HOST.test(host)) return !user.startsWith('-') && MICROSOFT_LOCAL.test(user);
  return true;
}

const NOT_DIGITS = /[^0-9]+/g;
const FIRST_DIGIT = /[0-9]/;

/** A phone number in ASCII without letters, which is the usual form and needs no conversion. */
const PLAIN_PHONE = /^[\s!-@]*$/;
const FOREIGN_DIGITS = /[^0-9\P{Nd}]/gu;
/** Full-width, small and superscript plus signs. */
const FOREIGN_PLUS = /[\uff0b\ufe62\u207a]/g;
/** Letters, and numerals that are not decimal digits, for example \u00b2 and \u2463. */
const UNREADABLE = /[\p{L}\p{Nl}\p{No}]/u;

/** Code of the ASCII character 0. */
const ZERO = 0x30;
/** Number of digits of one script. Unicode encodes them in sequence from 0 to 9. */
const DIGITS_OF_SCRIPT = 10;
const IS_DIGIT = /^\p{Nd}$/u;

/**
 * Converts the digits and the plus sign of a phone number to ASCII. Returns undefined if a letter or another numeral
 * follows the first digit, because dropping it would leave a different number: `+49 30 123456 ext. 7` is not
 * `+49301234567`.
 */
function toAsciiPhone(text: string): string | undefined {
  if (PLAIN_PHONE.test(text)) return text;
  const ascii = text.replace(FOREIGN_DIGITS, toAsciiDigit).replace(FOREIGN_PLUS, '+');
  return UNREADABLE.test(ascii.slice(Math.max(0, ascii.search(FIRST_DIGIT)))) ? undefined : ascii;
}

/** Converts a decimal digit of any script to the ASCII digit with the same value. */
function toAsciiDigit(digit: string): string {
  const code = digit.codePointAt(0)!;
  let first = code;
  // Several sets of digits may be adjacent, each of them ten digits long.
  while (IS_DIGIT.test(String.fromCodePoint(first - 1))) first--;
  return String.fromCharCode(ZERO + ((code - first) % DIGITS_OF_SCRIPT));
}

/** Maximum number of digits of an E.164 number. */
const MAX_DIGITS = 15;
/** Number of digits of a US number without its country code. */
const US_DIGITS = 10;

interface Phone {
  /** E.164 if valid. Otherwise the digits, with a leading + if the number had one. */
  readonly phone: string;
  /** Whether the number can identify a profile. */
  readonly valid: boolean;
}

/**
 * Reduces a phone number to + and ASCII digits and returns whether such a number can exist. Returns undefined if it has
 * no digits, more than 255 characters, or a letter or other numeral after its first digit. Digits may be of any script.
 * Ten digits without + are a US number. All other numbers need + and a country code, because a guess could be wrong: 11
 * digits with a leading 1 are a number in Boston or a mobile number in China. A redundant trunk 0, as in `+44 (0)20
 * 7183 8750`, is dropped.
 *
 * The small metadata check lengths and prefixes, but not every number block. The full metadata are often older than
 * newly assigned blocks. Refusing a valid number makes a profile unreachable, while accepting an unassigned number does
 * no harm.
 */
export function normalizePhone(text: string): Phone | undefined {
  if (text.length > MAX_CHARACTERS) return undefined;
  const ascii = toAsciiPhone(text);
  const first = ascii?.search(FIRST_DIGIT) ?? -1;
  if (ascii === undefined || first === -1) return undefined;
  const digits = ascii.replace(NOT_DIGITS, '');
  const plus = ascii.indexOf('+');
  if (plus === -1 || plus > first) {
    if (digits.length !== US_DIGITS) return { phone: digits, valid: false };
    return validate(`+1${digits}`);
  }
  return validate(`+${digits}`);
}

/**
 * Reads a phone number for a search: the number as written if it can exist, otherwise the same digits with a +. For
 * example `14155552003` becomes `+14155552003`. Guessing the country code is safe in a search, but not for a stored
 * number.
 */
export function searchedPhone(text: string): Phone | undefined {
  const asWritten = normalizePhone(text);
  if (!asWritten || asWritten.valid || asWritten.phone.startsWith('+')) return asWritten;
  const withPlus = normalizePhone(`+${asWritten.phone}`);
  return withPlus?.valid ? withPlus : asWritten;
}

/**
 * Results for the latest numbers, because clients send the numbers of the same users repeatedly. A cached result takes
 * 0.1 µs. A new one takes 4 µs for most numbers, and 20 µs for invalid numbers and for countries that share their
 * country code with the United States. The full cache takes about 2 MB.
 */
const cache = new LRUCache<string, Phone>({ max: 10_000 });

function validate(phone: string): Phone {
  if (phone.length > MAX_DIGITS + 1) return { phone, valid: false };
  const cached = cache.get(phone);
  if (cached) return cached;
  const result = validateUncached(phone);
  cache.set(phone, result);
  return result;
}

function validateUncached(phone: string): Phone {
  // Try E.164 first, because parsing the formats that people type takes three times as long.
  if (isValid(phone)) return { phone, valid: true };
  const parsed = parsePhoneNumberFromString(phone, metadata);
  return parsed?.isValid() ? { phone: parsed.number, valid: true } : { phone, valid: false };
}

function isValid(phone: string): boolean {
  try {
    return new PhoneNumber(phone as ConstructorParameters<typeof PhoneNumber>[0], metadata).isValid();
  } catch {
    // The constructor throws if the country code does not exist.
    return false;
  }
}
