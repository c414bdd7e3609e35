import { allOperations } from '../../src/operations/index.ts';
import { settings } from '../../src/platform/config.ts';
import { grouped } from '../../src/platform/format.ts';
import { type BucketName, buckets } from '../../src/schemas/limits.ts';
import { rulesOf } from '../../src/schemas/vendor-rules.ts';

const windows: Record<number, string> = { 1: 'second', 60: 'minute', 3600: 'hour', 86400: 'day' };

/** Returns the text of docs/rate-limits.md: how rate limits work, and the default of every bucket. */
export function rateLimitsPage(): string {
  // List the operations of `VENDOR_RULES=current`, which include all operations of `spec`.
  const operations = allOperations(settings.SERVICE_ID_FIELD.default, { rules: rulesOf.current });
  const rows = (Object.keys(buckets) as BucketName[]).map((bucket) => {
    const { requests, windowSeconds } = buckets[bucket];
    const shared = operations
      .filter((operation) => operation.bucket === bucket)
      .map(({ method, path }) => `\`${method} ${path.replace(/:(\w+)/g, '{$1}')}\``);
    return `| \`${bucket}\` | ${grouped(requests)} per ${windows[windowSeconds]} | ${[...new Set(shared)].join(', ')} |`;
  });
  return `# Rate limits

<!-- Generated from src/schemas/limits.ts and src/operations by \`npm run generate\`. -->

A rate limit belongs to a workspace and a bucket. Endpoints of one bucket share its limit.

| Bucket | Default | Endpoints |
| --- | --- | --- |
${rows.join('\n')}

With [\`VENDOR_RULES=current\`](vendor-rules.md), \`users.track\` and \`users.export.ids\` have other defaults, and windows are aligned with the clock. Only
that level has \`/users/track/sync\`.

The limit of a company for \`scim\` is the largest \`scim\` limit of its workspaces.

## What a client sees

Every response has \`X-RateLimit-Limit\`, \`X-RateLimit-Remaining\` and \`X-RateLimit-Reset\` (Unix time in seconds). They are empty if no limit
applies. A request above the limit is answered with 429 and \`Retry-After\`, and is not stored. On a 429, \`X-RateLimit-Reset\` and
\`Retry-After\` name the same second: the time at which the next request is allowed. Tokens refill evenly over the window. A request that is refused
with 503 because of load uses no token.

A rate limit counts requests, not their work. A workspace may have as much work waiting as is still free in the queue: one workspace alone fills half of the queue, two a
third each. Above that, its requests get 503 with the code \`workspace_over_share\` ([limits](overload.md)). Other workspaces are not refused.

## Change a limit

\`\`\`sh
penstock limits set --workspace default --bucket users.track --requests 100000 --window-seconds 60
penstock limits list --workspace default
\`\`\`

A change takes effect within \`KEY_CACHE_MS\`. The console shows the limits of a workspace and their use.

## With Redis

If \`REDIS_URL\` is set, all web processes share the limits in Redis. A busy web process takes tokens in advance, at most 1/32 of the bucket, so the limit is never
exceeded. If Redis loses its data, every bucket is full again.

## Without Redis

If \`REDIS_URL\` is empty, each web process counts for itself, in memory:

- With one web process, the limits are exact. This is the embedded form.
- With several web processes, each one allows the whole limit. For example, three processes allow three times the requests. Divide the limits by the
  number of processes, or set \`REDIS_URL\` together with \`QUEUE=postgres\`: the queue stays in Postgres, and the limits are shared in Redis.
- After a restart, buckets with a window of less than an hour are full. Buckets with a window of an hour or more are saved in Postgres once a second and when
  the process stops. A process that is killed forgets its last second, and everything since Postgres was last reachable.
- \`web\` and \`sync\` count separately. A sync uses one token of \`users.track\` for 75 rows, and leaves half of the bucket to requests.
`;
}
