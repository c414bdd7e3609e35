import type { Config } from '../platform/config.ts';
import { reachable } from '../platform/lifecycle.ts';

/** Settings of links to preference centers. */
export interface LinkSettings {
  /** Returns the address of a link. */
  urlOf(token: string): string;
  /** Days for which a link is valid. */
  days: number;
}

/** Path of the pages that links open. */
export const PREFERENCES = '/preferences';

/** Reads the settings for links to preference centers. */
export function createLinkSettings(config: Config): LinkSettings {
  const base = (config.PUBLIC_URL || `http://${reachable(config.HOST)}:${config.PORT}`).replace(/\/+$/, '');
  return { urlOf: (token) => `${base}${PREFERENCES}/${token}`, days: config.PREFERENCE_LINK_DAYS };
}
