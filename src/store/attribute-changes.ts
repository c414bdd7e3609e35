import { millisecondsOf } from '../platform/ids.ts';
import type { ProfileColumns } from '../profile/attribute-rule.ts';
import { columnNames } from '../profile/standard-columns.ts';
import { isUuid } from '../profile/values.ts';

/**
 * The column `attribute_changes` of a profile is a text of entries, newest first. An entry has the id of a request,
 * which begins with its time, the names of the attributes that changed, and `END`. `BETWEEN` separates names. Only entries with
 * an `END` are complete, because Postgres cuts the text.
 */
export const [BETWEEN, END] = ['\x1f', '\x1e'];

/** Characters of a UUID in base64url, and of the letter before it. */
const STAMP = 23;

/** Kinds of the id of an entry. An entry has the id of the request if its time is about the time of the object. */
const [REQUEST, OBJECT] = ['r', 'o'];
const SAME_TIME_MS = 60_000;

/** Characters of the names of one entry. Further names are omitted. */
export const MAX_NAMES_CHARACTERS = 200;

/** Columns that are not listed: their changes are in the history of subscriptions, or follow from another column. */
const unlisted: ReadonlySet<string> = new Set<keyof ProfileColumns>([
  'email_subscribe',
  'marked_email_as_spam_at',
  'phone_valid',
]);

/** The columns whose changes are listed. */
export const listedColumns: readonly string[] = [
  ...columnNames().filter((name) => !unlisted.has(name)),
  'push_subscribe',
];

// Objects of one request follow each other.
const last = { requestId: '', time: 0, stamp: '' };

/**
 * Returns the beginning of an entry: the id of the request. The id of the object instead if the request has another time,
 * as the run of a sync has, or no id.
 */
export function changeStamp(objectId: string, requestId: string): string {
  if (requestId !== last.requestId) {
    last.requestId = requestId;
    last.time = isUuid(requestId) ? millisecondsOf(requestId) : Number.NaN;
    last.stamp = REQUEST + shortId(requestId);
  }
  return Math.abs(millisecondsOf(objectId) - last.time) <= SAME_TIME_MS
    ? last.stamp
    : OBJECT + shortId(objectId);
}

function shortId(uuid: string): string {
  return Buffer.from(uuid.replaceAll('-', ''), 'hex')
    .toString('base64url')
    .padEnd(STAMP - 1, '-');
}

/** Returns the entry of a new user; undefined if no attribute was set. */
export function firstChange(
  stamp: string,
  { columns, custom }: { columns: Readonly<ProfileColumns>; custom: object },
): string | undefined {
  const names = [
    ...Object.entries(columns).flatMap(([name, value]) =>
      value === null || unlisted.has(name) ? [] : [name],
    ),
    ...Object.keys(custom),
  ];
  if (names.length === 0) return undefined;
  // Postgres counts a pair of surrogates as one character, and stores no half of it.
  return (
    stamp +
    [...names.join(BETWEEN).slice(0, 2 * MAX_NAMES_CHARACTERS)].slice(0, MAX_NAMES_CHARACTERS).join('') +
    END
  );
}

/** Attributes of a user that changed with one batch. */
export interface AttributesChange {
  at: Date;
  /** Absent if the change is stored with the id of its object. */
  requestId?: string;
  names: string[];
  /** Whether further names had no room. */
  isCut: boolean;
}

/** Reads the entries of the column. */
export function readAttributeChanges(text: string): AttributesChange[] {
  return text
    .split(END)
    .slice(0, -1)
    .flatMap((entry) => {
      const id = toUuid(entry.slice(1, STAMP));
      if (!isUuid(id)) return [];
      const text = entry.slice(STAMP);
      const names = text.split(BETWEEN);
      // Postgres has cut the text by characters, and `length` counts a character of two surrogates twice.
      const isCut = text.length >= MAX_NAMES_CHARACTERS && [...text].length >= MAX_NAMES_CHARACTERS;
      // The last name may be a part of a name.
      if (isCut && names.length > 1) names.pop();
      return {
        at: new Date(millisecondsOf(id)),
        ...(entry[0] === REQUEST && { requestId: id }),
        names,
        isCut,
      };
    });
}

function toUuid(short: string): string {
  const hex = Buffer.from(short, 'base64url').toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
