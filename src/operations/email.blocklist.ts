import { blocklisting } from './email/listing.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /email/blocklist */
export function emailBlocklist(): QueuedOperation {
  return blocklisting(
    'blocklist',
    'At most 50 addresses. They need not belong to a user. To undo this, use /email/bounce/remove and /email/status.',
  );
}

/** POST /email/blacklist: the older name of /email/blocklist. */
export function emailBlacklist(): QueuedOperation {
  return blocklisting('blacklist', 'The older name of /email/blocklist.');
}
