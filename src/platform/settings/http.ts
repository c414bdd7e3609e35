import { reservedNames } from '../../schemas/limits.ts';
import { vendorLevels } from '../../schemas/vendor-rules.ts';
import { integer, port, text } from './define.ts';

/** Settings of the API that web processes serve. */
export const httpSettings = {
  HOST: {
    ...text({
      description:
        'The address that web listens on. Set `0.0.0.0` in a container, or if a proxy on another machine connects to web.',
      default: '127.0.0.1',
      example: '0.0.0.0',
      readBy: ['web', 'board', 'cli', 'start'],
    }),
    unit: 'address',
  },
  PORT: port({
    description: 'The port that web listens on.',
    default: 3000,
    example: '8080',
    readBy: ['web', 'board', 'start', 'cli'],
  }),
  PUBLIC_URL: text({
    description:
      'The address at which clients and users reach web. It is used in links to preference centers and in locations of SCIM. Empty: links use HOST and PORT, and SCIM uses the host of the request.',
    example: 'https://api.example.com',
    readBy: ['web', 'board', 'cli'],
    // The value becomes part of a policy in a header.
    pattern: '^(https?://[^\\s?#;,\'"<>]+)?$',
    rule: 'must start with http:// or https:// and have neither a query nor quotes',
  }),
  TRUST_PROXY_HOPS: integer({
    description:
      'The number of reverse proxies in front of web. The address of a client is read from that position of X-Forwarded-For, counted from the right, and compared with IP allowlists. If the header has fewer entries, every IP allowlist refuses the request.',
    ...{ default: 0, minimum: 0, maximum: 10, unit: 'proxies' },
    example: '1',
    readBy: ['web'],
  }),
  KEY_CACHE_MS: integer({
    description:
      'The time for which a process caches an API key and the list of blocked users. A revoked key or a blocked user takes effect within this time. 0: each request reads them from Postgres.',
    ...{ default: 2000, minimum: 0, maximum: 60_000, unit: 'ms' },
    example: '500',
    readBy: ['web', 'sync', 'board', 'cli'],
  }),
  MAX_BODY_BYTES: integer({
    description:
      'The maximum size of a request body, also after decompression. A larger body is answered with 413.',
    ...{ default: 4_194_304, minimum: 1024, maximum: 67_108_864, unit: 'bytes' },
    example: '8388608',
    readBy: ['web'],
  }),
  SERVICE_ID_FIELD: text({
    description:
      'The name that requests and responses use for the user id that the service assigns. The plural has an `s` at the end. Set it for clients that use another name. If VENDOR_RULES is `current`, the default is `braze_id`.',
    default: 'service_id',
    example: 'braze_id',
    readBy: ['web', 'sync', 'board', 'cli'],
    pattern: '^[a-z][a-z0-9_]*$',
    rule: 'must be a name in lower case, for example service_id',
    not: { enum: [...new Set(reservedNames.flatMap((name) => [name, name.replace(/s$/, '')]))] },
  }),
  VENDOR_RULES: text({
    description:
      'The rules that the API follows where the vendor has changed them. `spec`: the rules of the specification that Penstock implements. `current`: the rules of the present public pages of the vendor, for example 75 objects in a request of `/users/track` and `/users/track/sync` (see docs/vendor-rules.md). All processes and the admin command need the same value.',
    default: 'spec',
    example: 'current',
    readBy: ['web', 'sync', 'board', 'cli'],
    enum: vendorLevels,
  }),
  LONG_STRINGS: text({
    description:
      'What happens to names and strings of more than 255 characters in attributes, events and purchases. `cut` stores the first 255 characters and adds a warning to the response. `refuse` rejects the object. All web, sync and board processes and the admin command need the same value.',
    default: 'cut',
    example: 'refuse',
    readBy: ['web', 'sync', 'board', 'cli'],
    enum: ['cut', 'refuse'],
  }),
  PREFERENCE_LINK_DAYS: integer({
    description: 'The number of days for which a new link to a preference center is valid.',
    ...{ default: 90, minimum: 1, maximum: 3650, unit: 'days' },
    example: '30',
    readBy: ['web', 'board', 'cli'],
  }),
  PROXY_UPSTREAM: text({
    description:
      'The address of another service with the same API, for a migration (see docs/migration.md). Web forwards requests to it, returns its responses, and keeps a copy of everything that changes users. Empty: web answers by itself.',
    example: 'https://rest.iad-01.braze.com',
    readBy: ['web'],
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  }),
  PROXY_TIMEOUT_MS: integer({
    description:
      'The maximum time that PROXY_UPSTREAM can take to respond. After this time, the request is answered with 504.',
    ...{ default: 10_000, minimum: 100, maximum: 60_000, unit: 'ms' },
    example: '30000',
    readBy: ['web'],
  }),
} as const;

/** High-water marks of a web process. Above a mark, requests are answered with 503. */
export const loadSettings = {
  MAX_WAITING_ENVELOPES: integer({
    description:
      'The maximum number of jobs that wait in the queue. Above it, requests that would add a job are answered with 503 until the number has fallen to 90 % of it. Bulk requests are refused at half of it, and an import stays below half of it. A workspace is refused while it has more waiting than is free.',
    ...{ default: 20_000, minimum: 1, maximum: 10_000_000, unit: 'jobs' },
    example: '50000',
    readBy: ['web', 'cli'],
  }),
  MAX_REDIS_MEMORY_PERCENT: integer({
    description:
      "The maximum share of Redis's maxmemory that may be used. Above it, requests that would add a job are answered with 503. Keep it below 100: a full Redis also refuses the commands of the workers, and stays full.",
    ...{ default: 80, minimum: 1, maximum: 100, unit: 'percent' },
    example: '70',
    readBy: ['web', 'cli'],
  }),
  MAX_EVENT_LOOP_LAG_MS: integer({
    description:
      'The maximum delay of the event loop of a web process. Above it, requests that would store something are answered with 503.',
    ...{ default: 1000, minimum: 20, maximum: 60_000, unit: 'ms' },
    example: '500',
    readBy: ['web'],
  }),
  MAX_READING_BYTES: integer({
    description:
      'The memory of one web process for request bodies over 128 KiB. A body counts with its length, and a compressed body as twice MAX_BODY_BYTES. At the limit, further large bodies wait for at most 5 s and are then answered with 503.',
    ...{ default: 16_777_216, minimum: 1024, maximum: 1_073_741_824, unit: 'bytes' },
    example: '33554432',
    readBy: ['web'],
  }),
  MAX_SMALL_BODIES_BYTES: integer({
    description:
      'The memory of one web process for all other request bodies, from the first byte to the response. At the limit, the oldest body that is still being received is answered with 503. Requests without a valid key are refused first.',
    ...{ default: 67_108_864, minimum: 131_072, maximum: 1_073_741_824, unit: 'bytes' },
    example: '134217728',
    readBy: ['web'],
  }),
  MAX_RESPONSE_BYTES: integer({
    description:
      'The memory of one web process for responses over 64 KiB that clients have not read yet. One workspace can use half of it. Above the limit, requests for large responses are answered with 503. Smaller responses can use a further quarter.',
    ...{ default: 33_554_432, minimum: 1_048_576, maximum: 1_073_741_824, unit: 'bytes' },
    example: '67108864',
    readBy: ['web'],
  }),
  MAX_PENDING_OBJECTS: integer({
    description:
      'The maximum number of objects that one web process holds while it adds them to the queue. Above it, requests are answered with 503. A workspace may hold as many as are free.',
    ...{ default: 100_000, minimum: 225, maximum: 10_000_000, unit: 'objects' },
    example: '200000',
    readBy: ['web', 'cli'],
  }),
  MAX_PENDING_BYTES: integer({
    description:
      'The maximum size of the objects that one web process holds while it adds them to the queue. Above it, requests are answered with 503. A workspace may hold as much as is free. Must be at least MAX_BODY_BYTES.',
    ...{ default: 33_554_432, minimum: 1024, maximum: 1_073_741_824, unit: 'bytes' },
    example: '67108864',
    readBy: ['web', 'cli'],
  }),
} as const;
