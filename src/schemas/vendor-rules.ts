import { type BucketName, buckets } from './limits.ts';

/** The values of VENDOR_RULES. */
export const vendorLevels = ['spec', 'current'] as const;

export type VendorLevel = (typeof vendorLevels)[number];

const DOCS = 'https://www.braze.com/docs';

/** The public pages of the vendor that the level `current` follows, as they were in September 2026. */
const pages = {
  rateLimits: `${DOCS}/api/api_limits/`,
  track: `${DOCS}/api/endpoints/user_data/post_user_track/`,
  trackSync: `${DOCS}/api/endpoints/user_data/post_user_track_synchronous/`,
  merge: `${DOCS}/api/endpoints/user_data/post_users_merge/`,
  identify: `${DOCS}/api/endpoints/user_data/post_user_identify/`,
  event: `${DOCS}/api/objects_filters/event_object/`,
  attributes: `${DOCS}/api/objects_filters/user_attributes_object/`,
} as const;

/** One level of a rule: a sentence for the documentation, and the value that the code reads. */
interface Level<Value> {
  does: string;
  value: Value;
}

interface Rule<Spec, Current> {
  /** The subject of the rule in a few words. */
  about: string;
  spec: Level<Spec>;
  current: Level<Current>;
  /** The public page that `current` is based on. */
  page: string;
}

const rule = <const Spec, const Current>(of: Rule<Spec, Current>): Rule<Spec, Current> => of;

/**
 * Every rule that depends on VENDOR_RULES. The code reads the values, docs/vendor-rules.md is generated from the sentences,
 * and a test sends requests for each rule at both levels.
 */
export const vendorRules = {
  objectsOfRequest: rule({
    about: 'Objects in one request of `/users/track`',
    spec: { does: '75 in each of the three arrays', value: { ofArray: 75 } },
    current: { does: '75 in the three arrays together', value: { inAll: 75 } },
    page: pages.rateLimits,
  }),
  trackRate: rule({
    about: 'Rate of `/users/track`',
    spec: { does: '50,000 requests a minute', value: buckets['users.track'] },
    current: { does: '3,000 requests in 3 s', value: { requests: 3000, windowSeconds: 3 } },
    page: pages.rateLimits,
  }),
  exportRate: rule({
    about: 'Rate of `/users/export/ids`',
    spec: { does: '2,500 requests a minute', value: buckets['users.export.ids'] },
    current: { does: '250 requests a minute', value: { requests: 250, windowSeconds: 60 } },
    page: pages.rateLimits,
  }),
  rateWindows: rule({
    about: 'Rate limit windows',
    spec: {
      does: 'Tokens refill evenly. `X-RateLimit-Reset` is the time at which the bucket is full.',
      value: 'even',
    },
    current: {
      does: 'Windows are aligned with the clock, and a new window allows the whole limit at once. `X-RateLimit-Reset` is the end of the window, also in a 429.',
      value: 'clock',
    },
    page: pages.rateLimits,
  }),
  eventPropertyBytes: rule({
    about: 'Properties of an event that contain arrays or objects',
    spec: { does: 'At most 50 KB', value: 51_200 },
    current: { does: 'At most 100 KB. A purchase can still have 50 KB.', value: 102_400 },
    page: pages.event,
  }),
  primaryIdentifiers: rule({
    about: 'An object with several of `external_id`, `user_alias` and the service id',
    spec: { does: 'Uses the first one in that order', value: 'first' },
    current: { does: 'Refuses the object', value: 'one' },
    page: pages.track,
  }),
  errorCodes: rule({
    about: '`type` of an entry in `errors` of `/users/track`',
    spec: { does: 'A sentence with the field and the rule', value: 'sentences' },
    current: {
      does: 'The code of the error, for example `EMAIL_BAD_FORMAT`, if the page lists one. All other errors and endpoints have sentences.',
      value: 'codes',
    },
    page: pages.track,
  }),
  invalidLocation: rule({
    about: 'A `current_location` without `longitude` and `latitude`',
    spec: { does: 'Omits the attribute and names it in `warnings`', value: 'omit' },
    current: { does: 'Refuses the object with `BAD_LOCATION_UPDATE`', value: 'refuse' },
    page: pages.track,
  }),
  unknownCountry: rule({
    about: 'An unknown `country`',
    spec: {
      does: 'Omits the attribute and names it in `warnings`. The stored country stays.',
      value: 'omit',
    },
    current: { does: 'Removes the stored country', value: 'remove' },
    page: pages.attributes,
  }),
  trackSync: rule({
    about: '`POST /users/track/sync`',
    spec: { does: '404', value: 'absent' },
    current: {
      does: 'Stores one object, and answers with the result after the object has taken effect',
      value: 'present',
    },
    page: pages.trackSync,
  }),
  mergeTypes: rule({
    about: 'The two identifiers of a merge update',
    spec: { does: 'Must be of one type', value: 'one' },
    current: {
      does: 'May be of different types, for example an email address and an external id',
      value: 'any',
    },
    page: pages.merge,
  }),
  mergeMessage: rule({
    about: 'Message for a malformed identifier of a merge update',
    spec: {
      does: 'Names `external_id` and `user_alias`',
      value:
        "identifiers must be objects with an 'external_id' property that is a string, or 'user_alias' property that is an object",
    },
    current: {
      does: 'Names `email` and `phone` as well',
      value:
        "identifiers must be objects with an 'external_id' property that is a string, 'user_alias' property that is an object, 'email' property that is a string, or 'phone' property that is a string",
    },
    page: pages.merge,
  }),
  takenLabel: rule({
    about:
      '`/users/identify` with an alias, if the user with the external id has another alias with that label',
    spec: { does: "Combines the users. The identified user's alias stays.", value: 'combine' },
    current: { does: 'Combines nothing', value: 'ignore' },
    page: pages.identify,
  }),
  largeBulkBody: rule({
    about: 'A body of more than 2 MB at `/users/track/bulk`',
    spec: { does: '413', value: 413 },
    current: { does: '400', value: 400 },
    page: pages.rateLimits,
  }),
  serviceIdField: rule({
    about: 'Name of the service id, if `SERVICE_ID_FIELD` is not set',
    spec: { does: '`service_id`', value: 'service_id' },
    current: { does: '`braze_id`', value: 'braze_id' },
    page: pages.track,
  }),
} as const;

export type VendorRuleName = keyof typeof vendorRules;

/** The values of one level, which every process reads once, at its start. */
export type VendorRules = {
  readonly [Name in VendorRuleName]:
    | (typeof vendorRules)[Name]['spec']['value']
    | (typeof vendorRules)[Name]['current']['value'];
};

function valuesOf(level: VendorLevel): VendorRules {
  const values = Object.entries(vendorRules).map(([name, { [level]: of }]) => [name, of.value]);
  return Object.freeze(Object.fromEntries(values)) as VendorRules;
}

/** The rules of each level. */
export const rulesOf: Readonly<Record<VendorLevel, VendorRules>> = {
  spec: valuesOf('spec'),
  current: valuesOf('current'),
};

interface Limit {
  readonly requests: number;
  readonly windowSeconds: number;
}

/** Returns the default rate limit of every bucket. */
export const bucketsOf = ({ trackRate, exportRate }: VendorRules): Readonly<Record<BucketName, Limit>> => ({
  ...buckets,
  'users.track': trackRate,
  'users.export.ids': exportRate,
});
