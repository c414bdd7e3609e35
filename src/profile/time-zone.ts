import { FURTHER_TIME_ZONES, RAILS_TIME_ZONES } from './time-zone-names.ts';

/** By lower-case name, since IANA names differ in more than case. */
const zoneByName = new Map<string, string>();
for (const [zone, names] of Object.entries(RAILS_TIME_ZONES)) {
  for (const name of names) zoneByName.set(name.toLowerCase(), zone);
}
for (const zone of [...FURTHER_TIME_ZONES, ...Intl.supportedValuesOf('timeZone')]) {
  zoneByName.set(zone.toLowerCase(), zone);
}

/** The longest known name has fewer characters. */
const MAX_LENGTH = 40;

/**
 * The IANA name of a time zone that is given by this name or by the one of Ruby on Rails, in any case;
 * undefined for anything else, offsets included. A link such as Asia/Kolkata stays what it is.
 */
export function normalizeTimeZone(text: string): string | undefined {
  return text.length > MAX_LENGTH ? undefined : zoneByName.get(text.toLowerCase());
}
