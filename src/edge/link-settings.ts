import type { Config } from '../config.ts';
import type { LinkSettings } from '../operations/operation.ts';
import { reachable } from '../reachable.ts';

/** Where the page of a link is. */
export const PREFERENCES = '/preferences';

/** How links to preference centers are made, from the settings. */
export function createLinkSettings(config: Config): LinkSettings {
  const base = (config.PUBLIC_URL || `http://${reachable(config.HOST)}:${config.PORT}`).replace(/\/+$/, '');
  return { urlOf: (token) => `${base}${PREFERENCES}/${token}`, days: config.PREFERENCE_LINK_DAYS };
}
