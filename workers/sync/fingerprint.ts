import { createHash } from 'node:crypto';
import type { SourceRow } from '../../src/integrations/source.ts';

/** Names a row by all that a sync knows of it, in hex: equal rows have equal fingerprints. */
export function fingerprintOf({ updatedAt, unreadable, identifiers, payload }: SourceRow): string {
  const { external_id, alias_name, alias_label, service_id, email, phone } = identifiers;
  const known = [
    updatedAt ?? null,
    unreadable ?? null,
    external_id ?? null,
    alias_name ?? null,
    alias_label ?? null,
    service_id ?? null,
    email ?? null,
    phone ?? null,
    payload ?? null,
  ];
  return createHash('sha256').update(JSON.stringify(known)).digest('hex');
}

/** How many there are of each. */
export function tally(fingerprints: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const each of fingerprints) counts.set(each, (counts.get(each) ?? 0) + 1);
  return counts;
}
