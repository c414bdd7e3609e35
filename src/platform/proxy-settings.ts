/** Of the thin proxy before another service, in the form of `settings`: docs/migration.md. */
export const proxySettings = {
  PROXY_UPSTREAM: {
    type: 'string' as const,
    default: '',
    unit: '',
    description:
      'Address of another service of the same API: a web process then answers as that one does, and keeps its own copy of what changes users (docs/migration.md); empty: no proxy.',
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  },
  PROXY_TIMEOUT_MS: {
    type: 'integer' as const,
    default: 10_000,
    minimum: 100,
    maximum: 60_000,
    unit: 'ms',
    description: 'How long PROXY_UPSTREAM may take to answer; then 504.',
  },
};
