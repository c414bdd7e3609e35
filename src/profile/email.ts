import { parse } from 'tldts';
import isEmail from 'validator/lib/isEmail.js';

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
 * The lower-case form of an email address, or undefined when it is not a valid one. White space makes an
 * address invalid wherever it stands, also around it. A host is ASCII (punycode) and ends in a top-level
 * domain of ICANN's list.
 */
export function normalizeEmail(text: string): string | undefined {
  const { address, local, host } = split(text) ?? {};
  if (address === undefined || !isAllowedAt(host!, local!)) return undefined;
  return parse(host!, ICANN_ONLY).isIcann ? address : undefined;
}

/**
 * As `normalizeEmail`, of somebody's own people and not of customers: the host may be of a private network
 * (`corp.internal`), and no provider's rules are known better than by whoever gave the address out.
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
