/** Why an object for a blocked external id is refused. Clients match on this text. */
export const BLOCKED = 'provided external_id is blacklisted and disallowed';
