import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

const derive = promisify<string, Buffer, number, object, Buffer>(scrypt);

/** 32 MB and some 0.2 s for each guess. Stored with the hash, so that it may grow later. */
const COST = { N: 32_768, r: 8, p: 3 };
const MAX_MEMORY = 64 * 1024 * 1024;
const HASH_BYTES = 32;

const SHORTEST = 12;
const LONGEST = 128;
const FEWEST_DIFFERENT = 5;

/** For whoever chooses one. */
export const PASSWORD_RULE = `It has ${SHORTEST} characters or more; a few words that do not belong together will do.`;

/** What is wrong with a new password, in words; nothing when it will do. Length counts for more than mixture. */
export function passwordProblem(password: string, email: string): string | undefined {
  const characters = [...password];
  if (characters.length < SHORTEST || characters.length > LONGEST)
    return `A password has ${SHORTEST} to ${LONGEST} characters.`;
  if (new Set(characters).size < FEWEST_DIFFERENT)
    return `A password has at least ${FEWEST_DIFFERENT} different characters.`;
  const [name = ''] = email.split('@');
  const lowered = password.toLowerCase();
  if (lowered.includes(email) || (name.length > 3 && lowered.includes(name)))
    return 'A password does not contain your email address.';
  return undefined;
}

/** The form that is stored: `scrypt$N$r$p$salt$hash`. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const hash = await derive(password.normalize('NFKC'), salt, HASH_BYTES, { ...COST, maxmem: MAX_MEMORY });
  const { N, r, p } = COST;
  return ['scrypt', N, r, p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

/** @param stored what `hashPassword` made */
export async function isPassword(password: string, stored: string): Promise<boolean> {
  const [, N, r, p, salt = '', hash = ''] = stored.split('$');
  const expected = Buffer.from(hash, 'base64url');
  const cost = { N: Number(N), r: Number(r), p: Number(p), maxmem: MAX_MEMORY };
  const given = await derive(
    password.normalize('NFKC'),
    Buffer.from(salt, 'base64url'),
    expected.length,
    cost,
  );
  return timingSafeEqual(given, expected);
}
