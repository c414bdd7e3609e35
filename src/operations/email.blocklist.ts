import { blocklisting } from './email/blocklisting.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /email/blocklist */
export function emailBlocklist(): QueuedOperation {
  return blocklisting(
    'blocklist',
    'At most 50 addresses, whether anybody has them or not. /email/bounce/remove and /email/status undo it.',
  );
}
