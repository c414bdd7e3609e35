import { createRequire } from 'node:module';
import { PhoneNumber, parsePhoneNumberFromString } from 'libphonenumber-js/core';
import metadata from 'libphonenumber-js/min/metadata';
import { LRUCache } from 'lru-cache';
import isEmail from 'validator/lib/isEmail.js';

/** CommonJS, which loads in a quarter of the time that its ES form takes. */
const { parse } = createRequire(import.meta.url)('tldts') as typeof import('tldts');

/** RFC 5321, in bytes. */
const MAX_LOCAL = 64;
const MAX_HOST = 253;

/** At least two labels. No `u` flag: only ASCII letters match, so no look-alike becomes ASCII when lowered. */
const HOST = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i;
/** The common local part, after lowering; a subset of both `LOCAL` and what validator accepts. */
const PLAIN_LOCAL = /^[a-z0-9_-]+(?:[.+][a-z0-9_-]+)*$/;
/** Letters, digits, `_` and `-` of any script; inside also `. + ' & # /`. */
const LOCAL = /^[\p{L}\p{N}_-](?:[\p{L}\p{M}\p{N}_.+'&#/-]*[\p{L}\p{M}\p{N}_-])?$/u;

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
 * As `normalizeEmail`, of somebody's own people and not of customers. The host may be of a private network
 * (`corp.internal`). Nobody knows a provider's rules better than whoever gave the address out.
 */
export function normalizeStaffEmail(text: string): string | undefined {
  const { address, host } = split(text) ?? {};
  return host !== undefined && !NUMERIC_END.test(host) ? address : undefined;
}

/** Of the general form, in lower case. */
function split(text: string): { address: string; local: string; host: string } | undefined {
  const at = text.lastIndexOf('@');
  if (at < 1 || at > MAX_LOCAL || text.length - at - 1 > MAX_HOST) return undefined;
  if (!HOST.test(text.slice(at + 1))) return undefined;
  const address = text.toLowerCase();
  const end = address.lastIndexOf('@');
  const local = address.slice(0, end);
  // The general check costs more than all the rest, and says nothing new of a plain local part.
  if (!PLAIN_LOCAL.test(local) && !(LOCAL.test(local) && isEmail.default(address))) return undefined;
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
 * Strips a phone number to + and digits and says whether such a number can exist; undefined when it has no digits. Ten
 * digits without + are a number of the United States. Any other number needs + and its country code, since no guess is
 * safe: 11 digits with a leading 1 are a number in Boston or a mobile in China. What is written twice is said once: the
 * trunk 0 of `+44 (0)20 7183 8750` is dropped.
 *
 * The small metadata: it knows lengths and prefixes, but not each number block. The full set is more often
 * behind the blocks really handed out, and a refused number is an unreachable profile, while an accepted
 * one that nobody has does no harm.
 */
export function normalizePhone(text: string): Phone | undefined {
  const first = text.search(FIRST_DIGIT);
  if (first === -1) return undefined;
  const digits = text.replace(NOT_DIGITS, '');
  const plus = text.indexOf('+');
  if (plus === -1 || plus > first) {
    if (digits.length !== US_DIGITS) return { phone: digits, valid: false };
    return judge(`+1${digits}`);
  }
  return judge(`+${digits}`);
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
