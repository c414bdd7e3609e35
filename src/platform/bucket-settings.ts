/** How the processes reach the buckets that settings name by `s3://bucket/prefix`. */
export const bucketSettings = {
  S3_REGION: {
    type: 'string',
    default: '',
    unit: '',
    description: 'Region of the buckets that settings name as s3://bucket/prefix.',
    pattern: '^([a-z0-9-]{1,64})?$',
    rule: 'must be a region, as eu-central-1',
  },
  S3_ENDPOINT: {
    type: 'string',
    default: '',
    unit: '',
    description: 'Address of the service that has these buckets, as https://objects.example; empty: AWS.',
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  },
  S3_ACCESS_KEY_ID: {
    type: 'string',
    default: '',
    unit: '',
    description: 'Who reads and writes these buckets.',
    pattern: '^([!-~]{1,255})?$',
    rule: 'must be 1 to 255 visible ASCII characters',
  },
  S3_SECRET_ACCESS_KEY: {
    type: 'string',
    default: '',
    unit: '',
    description: 'The secret of S3_ACCESS_KEY_ID.',
    pattern: '^([!-~]{1,500})?$',
    rule: 'must be 1 to 500 visible ASCII characters',
  },
} as const;
