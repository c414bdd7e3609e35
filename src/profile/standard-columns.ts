import type { Json } from './json.ts';

/**
 * How a merge resolves a field that both profiles may have. `kept` is the profile that remains.
 *
 * - `keep`: the kept profile's value, or the merged profile's value if the kept profile has none
 * - `sum`, `earliest`, `latest`: computed from both values
 * - `newest`: the later of two time stamps that Penstock has set
 * - `stay`: the kept profile's value, even if it is empty
 * - `join`: the entries of both values
 */
export type MergeRule = 'keep' | 'sum' | 'earliest' | 'latest' | 'newest' | 'stay' | 'join';

interface StandardColumn {
  /** `text` and `time` are strings in JSON, a time in ISO 8601. */
  type: 'text' | 'time' | 'boolean' | 'number' | 'json';
  /** What a merge does with it. Absent for a column that follows another one. */
  merge?: MergeRule;
  /** Whether the value is masked for members without the right to see personal data. */
  isPersonal: boolean;
  /** Whether filters of segments can use it. */
  isFilter?: true;
  /** Description of the field of the same name in exports. Absent if it is exported in another form. */
  field?: string;
  /** Name on the page of a user in the console. Absent if the page does not show it by itself. */
  label?: string;
}

const personal = { type: 'text', merge: 'keep', isPersonal: true } as const;
const locale = { type: 'text', merge: 'keep', isPersonal: false } as const;
const coordinate = { type: 'number', merge: 'keep', isPersonal: true } as const;
const flag = { type: 'boolean', merge: 'keep', isPersonal: false } as const;
const account = { type: 'json', merge: 'keep', isPersonal: true } as const;

/**
 * The columns of `profiles` that hold standard attributes. A new one needs a migration, a line in prisma/schema.prisma,
 * a line here, and its rule in standard-attributes.ts. Statements, exports, merges, filters of segments, imports,
 * templates of preference centers and the console read this list.
 */
export const standardColumns = {
  email: { ...personal, isFilter: true, field: 'Email address, lower-case.', label: 'Email' },
  phone: {
    ...{ ...personal, isFilter: true, label: 'Phone' },
    field: '`+` and digits. A number that cannot exist is returned as sent.',
  },
  /** Whether the phone number can identify the profile. */
  phone_valid: { type: 'boolean', isPersonal: false },
  first_name: { ...personal, isFilter: true, field: 'First name.' },
  last_name: { ...personal, isFilter: true, field: 'Last name.' },
  gender: {
    ...{ ...personal, isFilter: true, label: 'Gender' },
    field: '`M`, `F`, `O` (other), `N` (not applicable) or `P` (prefers not to say).',
  },
  dob: { ...personal, isFilter: true, field: 'Date of birth as YYYY-MM-DD.', label: 'Date of birth' },
  home_city: { ...personal, isFilter: true, field: 'Home city.', label: 'Home city' },
  country: { ...locale, isFilter: true, field: 'ISO 3166-1 alpha-2.', label: 'Country' },
  language: { ...locale, isFilter: true, field: 'ISO 639-1.', label: 'Language' },
  time_zone: { ...locale, isFilter: true, field: 'IANA name.', label: 'Time zone' },
  image_url: { ...personal, field: 'Address of a picture.' },
  latitude: coordinate,
  longitude: coordinate,
  date_of_first_session: {
    ...{ type: 'time', merge: 'earliest', isPersonal: false, isFilter: true },
    ...{ field: 'First session.', label: 'First session' },
  },
  date_of_last_session: {
    ...{ type: 'time', merge: 'latest', isPersonal: false, isFilter: true },
    ...{ field: 'Last session.', label: 'Last session' },
  },
  marked_email_as_spam_at: {
    ...{ type: 'time', merge: 'latest', isPersonal: false },
    ...{ field: 'Time at which the user marked a message as spam.', label: 'Marked as spam' },
  },
  email_open_tracking_disabled: { ...flag, field: 'Whether opens of emails are not tracked.' },
  email_click_tracking_disabled: { ...flag, field: 'Whether clicks in emails are not tracked.' },
  facebook: { ...account, field: 'As sent.', label: 'Facebook' },
  twitter: { ...account, field: 'As sent.', label: 'Twitter' },
} as const satisfies Record<string, StandardColumn>;

export type ColumnName = keyof typeof standardColumns;
type TypeOf<Name extends ColumnName> = (typeof standardColumns)[Name]['type'];

/** Names of the columns of one type. */
export type ColumnOf<Type> = { [Name in ColumnName]: TypeOf<Name> extends Type ? Name : never }[ColumnName];

/** Members of a column in JSON, by its type. */
interface Values {
  text: string;
  time: string;
  boolean: boolean;
  number: number;
  json: Json;
}

/** Standard attributes by column of `profiles`. Times are ISO 8601 in UTC; `dob` is YYYY-MM-DD. Null removes one. */
export type StandardAttributes = { [Name in ColumnName]?: Values[TypeOf<Name>] | null };

const columns: [name: ColumnName, column: StandardColumn][] = Object.entries(standardColumns) as [
  ColumnName,
  StandardColumn,
][];

/** Returns the columns with a property, in their order. */
export const columnsWith = (has: (column: StandardColumn) => unknown): [ColumnName, StandardColumn][] =>
  columns.filter(([, column]) => has(column));

/** Returns the names of the columns with a property, in their order. */
export const columnNames = (has: (column: StandardColumn) => unknown = () => true): ColumnName[] =>
  columnsWith(has).map(([name]) => name);

/** Names of the text columns that filters of segments can use. */
export const filterTexts = columnNames(({ type, isFilter }) => isFilter && type === 'text');
