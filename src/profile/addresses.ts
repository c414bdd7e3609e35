import { createRequire } from 'node:module';
import { PhoneNumber, parsePhoneNumberFromString } from 'libphonenumber-js/core';
import metadata from 'libphonenumber-js/min/metadata';
import { LRUCache } from 'lru-cache';
import isEmail from 'validator/lib/isEmail.js';
import { MAX_CHARACTERS } from './values.ts';

/** CommonJS, which loads in a quarter of the time that its ES form takes. */
const { parse } = createRequire(import.meta.url)('tldts') as typeof import('tldts');

/** RFC 5321, in bytes. */
const MAX_LOCAL = 64;
const MAX_HOST = 253;

/** At least two labels. No `u` flag: only ASCII letters match, so no look-alike becomes ASCII when lowered. */
const HOST = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i;
/** The common local part, a subset of both `LOCAL` and what validator accepts. No `u` flag, as in `HOST`. */
const PLAIN_LOCAL = /^[a-z0-9_-]+(?:[.+][a-z0-9_-]+)*$/i;
/** Letters, digits, `_` and `-` of any script; inside also `. + ' & # /`. */
const LOCAL = /^[\p{L}\p{N}_-](?:[\p{L}\p{M}\p{N}_.+'&#/-]*[\p{L}\p{M}\p{N}_-])?$/u;
/** The Kelvin sign: its lower-case form is the ASCII letter k, which belongs to another address. */
const KELVIN_SIGN = '\u212a';

/** A dot-atom of RFC 5322 §3.2.3, with letters and digits of any script (RFC 6531). */
const DOT_ATOM = /^[\p{L}\p{M}\p{N}!#$%&'*+\-/=?^_`{|}~]+(?:\.[\p{L}\p{M}\p{N}!#$%&'*+\-/=?^_`{|}~]+)*$/u;

/** As a whole label: a name like deliver.com only contains "live". */
const MICROSOFT_HOST = /(?:^|\.)(?:msn|hotmail|outlook|live)\./;
const MICROSOFT_LOCAL = /^\w[\w-]*(?:\.[\w-]+)*$/;
/** An IPv4 address, or what looks like one. */
const NUMERIC_END = /\.[0-9]+$/;
const GMAIL_HOST = /(?:^|\.)(?:gmail|googlemail)\.com$/;

const ICANN_ONLY = { allowPrivateDomains: false, extractHostname: false, detectIp: false } as const;

/**
 * The lower-case form of an email address, or undefined when it is not a valid one. White space around it is
 * dropped, within it makes it invalid. A host is ASCII (punycode) and ends in a top-level domain of ICANN's list.
 */
export function normalizeEmail(text: string): string | undefined {
  const { address, local, host } = split(text) ?? split(text.trim()) ?? {};
  if (address === undefined || !isAllowedAt(host!, local!)) return undefined;
  return parse(host!, ICANN_ONLY).isIcann ? address : undefined;
}

/**
 * Returns the lower-case form of a dashboard account's address, or undefined when it is not valid. The company assigns
 * these addresses itself, so the rules are those of RFC 5322 alone: the host may belong to a private network
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

/** Of the general form, in lower case. */
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

/** What the large providers do not hand out. */
function isAllowedAt(host: string, local: string): boolean {
  const plus = local.indexOf('+');
  const user = plus === -1 ? local : local.slice(0, plus);
  if (GMAIL_HOST.test(host)) return user.length >= 2;
  if (MICROSOFT_HOST.test(host)) return !user.startsWith('-') && MICROSOFT_LOCAL.test(user);
  return true;
}

const NOT_DIGITS = /[^0-9]+/g;
const FIRST_DIGIT = /[0-9]/;

/** A phone number of ASCII characters without letters: the usual form, which needs no conversion. */
const PLAIN_PHONE = /^[\s!-@]*$/;
const FOREIGN_DIGITS = /[^0-9\P{Nd}]/gu;
/** Other widths and heights of the plus sign. */
const FOREIGN_PLUS = /[\uff0b\ufe62\u207a]/g;
/** Letters, and numerals such as \u00b2 and \u2463 that are no decimal digits. */
const UNREADABLE = /[\p{L}\p{Nl}\p{No}]/u;

/** Code of the ASCII character 0. */
const ZERO = 0x30;
/** Digits of one script, which Unicode encodes in a row from 0 to 9. */
const DIGITS_OF_SCRIPT = 10;
const IS_DIGIT = /^\p{Nd}$/u;

/**
 * A phone number with ASCII digits and an ASCII plus sign; undefined when a letter or another numeral follows the first
 * digit. Dropping those would leave a different number: `+49 30 123456 ext. 7` is not `+49301234567`.
 */
function toAsciiPhone(text: string): string | undefined {
  if (PLAIN_PHONE.test(text)) return text;
  const ascii = text.replace(FOREIGN_DIGITS, toAsciiDigit).replace(FOREIGN_PLUS, '+');
  return UNREADABLE.test(ascii.slice(Math.max(0, ascii.search(FIRST_DIGIT)))) ? undefined : ascii;
}

/** The ASCII digit with the value of a decimal digit of any script. */
function toAsciiDigit(digit: string): string {
  const code = digit.codePointAt(0)!;
  let first = code;
  // Several sets may follow each other without a gap, each of them ten digits long.
  while (IS_DIGIT.test(String.fromCodePoint(first - 1))) first--;
  return String.fromCharCode(ZERO + ((code - first) % DIGITS_OF_SCRIPT));
}

/** Digits of an E.164 number. */
const MAX_DIGITS = 15;
/** Digits of a number of the United States without its country code. */
const US_DIGITS = 10;

export interface Phone {
  /** E.164 if valid; otherwise the digits, and a leading + if there was one. */
  readonly phone: string;
  /** Whether the number can identify a profile. */
  readonly valid: boolean;
}

/**
 * Strips a phone number to + and ASCII digits and returns whether such a number can exist. Undefined when it has no
 * digits, more than 255 characters, or after its first digit a letter or a numeral that is no decimal digit. Digits may
 * be of any script. Ten digits without + are a number of the United States. Any other number needs + and its country code, since no guess is
 * safe: 11 digits with a leading 1 are a number in Boston or a mobile in China. What is written twice is said once: the
 * trunk 0 of `+44 (0)20 7183 8750` is dropped.
 *
 * The small metadata: it knows lengths and prefixes, but not each number block. The full set is more often
 * behind the blocks really handed out, and a refused number is an unreachable profile, while an accepted
 * one that nobody has does no harm.
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
    return judge(`+1${digits}`);
  }
  return judge(`+${digits}`);
}

/**
 * Reads a phone number that somebody looks for: the number as written if it can exist, else the same digits with a +.
 * `14155552003` is `+14155552003`. A search may guess the country code; a stored number may not.
 */
export function searchedPhone(text: string): Phone | undefined {
  const asWritten = normalizePhone(text);
  if (!asWritten || asWritten.valid || asWritten.phone.startsWith('+')) return asWritten;
  const withPlus = normalizePhone(`+${asWritten.phone}`);
  return withPlus?.valid ? withPlus : asWritten;
}

/**
 * Verdicts on the numbers seen last. A verdict takes 4 µs for most numbers. It takes 20 µs for those that share their
 * country code with the United States and for those that are no numbers. A remembered one takes 0.1 µs, and clients
 * send the same users' numbers again and again. Full, it has about 2 MB.
 */
const verdicts = new LRUCache<string, Phone>({ max: 10_000 });

function judge(phone: string): Phone {
  if (phone.length > MAX_DIGITS + 1) return { phone, valid: false };
  const known = verdicts.get(phone);
  if (known) return known;
  const verdict = verdictOn(phone);
  verdicts.set(phone, verdict);
  return verdict;
}

function verdictOn(phone: string): Phone {
  // Read as E.164 first, since parsing what a person may have typed takes three times as long.
  if (isValid(phone)) return { phone, valid: true };
  const parsed = parsePhoneNumberFromString(phone, metadata);
  return parsed?.isValid() ? { phone: parsed.number, valid: true } : { phone, valid: false };
}

function isValid(phone: string): boolean {
  try {
    return new PhoneNumber(phone as ConstructorParameters<typeof PhoneNumber>[0], metadata).isValid();
  } catch {
    // The constructor throws for a country code that nobody has.
    return false;
  }
}
