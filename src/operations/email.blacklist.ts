import { blocklisting } from './email/blocklisting.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /email/blacklist: the older name of /email/blocklist. */
export function emailBlacklist(): QueuedOperation {
  return blocklisting('blacklist', 'The older name of /email/blocklist.');
}
