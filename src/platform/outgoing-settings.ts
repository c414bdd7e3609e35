const NETWORK = '[0-9A-Fa-f.:]+/[0-9]{1,3}';

/** Settings of what we connect to for somebody else. */
export const outgoingSettings = {
  REFUSED_NETWORKS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Addresses that are connected to for nobody, also where a name leads to them: for webhooks, callbacks, brokers, buckets, and sources of syncs and imports. Networks as 10.0.0.0/8 and the words private (all that is no public address: private, loopback, link-local, multicast and others), metadata (what cloud machines ask for credentials) or none, with commas between. Empty: private, and metadata with the embedded Postgres. Equal on every process and for the admin command.',
    pattern: `^((none|metadata|private|${NETWORK})( *, *(metadata|private|${NETWORK}))*)?$`,
    rule: 'must be networks as 10.0.0.0/8, private or metadata, with commas between, or none',
  },
  ALLOWED_NETWORKS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Exceptions of REFUSED_NETWORKS, as the networks that your own warehouses and receivers are in: networks as 10.1.0.0/16, with commas between. Equal on every process and for the admin command.',
    pattern: `^(${NETWORK}( *, *${NETWORK})*)?$`,
    rule: 'must be networks as 10.1.0.0/16, with commas between',
  },
  SYNC_REFUSED_NETWORKS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Instead of REFUSED_NETWORKS for what the operator alone names, which are sources of syncs and imports, the buckets of ARCHIVE_URL and SEGMENT_EXPORT_URL, and those that penstock export writes to: networks as 10.0.0.0/8, private or metadata, with commas between; none: any may be reached. Empty: REFUSED_NETWORKS. ALLOWED_NETWORKS are exceptions here, too.',
    pattern: `^((none|metadata|private|${NETWORK})( *, *(metadata|private|${NETWORK}))*)?$`,
    rule: 'must be networks as 10.0.0.0/8, private or metadata, with commas between, or none',
  },
  STREAM_LOG_DAYS: {
    type: 'integer',
    default: 7,
    minimum: 1,
    maximum: 365,
    unit: 'days',
    description:
      'How long the log of streams is kept, of workspaces that have a destination: what a destination has not got by then it never gets.',
  },
  STREAM_YIELD_SECONDS: {
    type: 'integer',
    default: 60,
    minimum: 0,
    maximum: 86_400,
    unit: 'seconds',
    description:
      'How far streams may fall behind what takes effect, while workers are behind and the machine of the sync process has no processor to spare: until then each destination gets 500 messages every five seconds at most, from then on its share of the machine. 0: they never give way.',
  },
  STREAM_FOLDERS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Folders that streams may write files to, with all that is beneath them: paths from the root, with commas between. Unless told, the folder streams of DATA_DIR. Equal on every sync process and for the admin command.',
    pattern: '^(/[^,]*( *, */[^,]*)*)?$',
    rule: 'must be paths that begin with a slash, with commas between',
  },
  SEGMENT_EXPORT_URL: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Where POST /users/export/segment writes: s3://bucket/prefix, or the path of a folder that web and sync share; unless told, the folder segment-exports of DATA_DIR. Equal on every web and sync process.',
  },
} as const;
