/**
 * The rate-limit buckets: the requests that one workspace may make in a window. Operations that name the
 * same bucket share it. A row of `rate_limits` overrides a bucket for one workspace.
 */
export const buckets = {
  'users.track': { requests: 50_000, windowSeconds: 60 },
  /** Shared by users.delete, users.alias.new, users.alias.update, users.identify and users.merge. */
  'users.identity': { requests: 20_000, windowSeconds: 60 },
  /** Shared by users.external_ids.rename and users.external_ids.remove. */
  'users.external_ids': { requests: 1000, windowSeconds: 60 },
  'users.export.ids': { requests: 2500, windowSeconds: 60 },
  /** Shared by /subscription/status/set and /v2/subscription/status/set. */
  'subscription.status.set': { requests: 5000, windowSeconds: 60 },
  requests: { requests: 2500, windowSeconds: 60 },
  /** Shared by every operation without a bucket of its own. */
  default: { requests: 250_000, windowSeconds: 3600 },
  /** Shared by every verb of SCIM. */
  scim: { requests: 5000, windowSeconds: 86_400 },
  'cdi.integration_list': { requests: 50, windowSeconds: 60 },
  'cdi.integration_job_status': { requests: 100, windowSeconds: 60 },
  'cdi.integration_sync': { requests: 20, windowSeconds: 60 },
  /** Shared by listing, viewing and making the link of a preference center. */
  'preference_center.read': { requests: 1000, windowSeconds: 60 },
  /** Shared by creating and updating a preference center. */
  'preference_center.write': { requests: 10, windowSeconds: 60 },
} as const satisfies Record<string, { requests: number; windowSeconds: number }>;

export type BucketName = keyof typeof buckets;
