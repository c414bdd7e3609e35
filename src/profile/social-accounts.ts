import { type AttributeRule, standardOf } from './attribute-rule.ts';
import type { AttributesDelta } from './attributes-delta.ts';
import type { Json } from './json.ts';
import { exceedsJsonBytes } from './json-size.ts';
import { MAX_OBJECT_BYTES } from './nested.ts';
import { isRecord } from './record.ts';

interface Member {
  is(value: Json): boolean;
  rule: string;
}

const id: Member = {
  // Ids outgrew the integers of JSON readers, so both forms are in use.
  is: (value) => typeof value === 'string' || Number.isInteger(value),
  rule: 'a string or an integer',
};
const integer: Member = { is: Number.isInteger, rule: 'an integer' };
const string: Member = { is: (value) => typeof value === 'string', rule: 'a string' };
const strings: Member = {
  is: (value) => Array.isArray(value) && value.every((element) => typeof element === 'string'),
  rule: 'an array of strings',
};

/** What is known of a user's accounts elsewhere; members without a rule are kept as sent. */
export const facebook: AttributeRule = account('facebook', { id, likes: strings, num_friends: integer });
export const twitter: AttributeRule = account('twitter', {
  id,
  screen_name: string,
  followers_count: integer,
  friends_count: integer,
  statuses_count: integer,
});

function account(name: 'facebook' | 'twitter', members: Record<string, Member>): AttributeRule {
  const rules = Object.entries(members);
  return function ruleOfAccount(delta: AttributesDelta, value: Json) {
    if (value !== null) {
      if (!isRecord(value)) return `'${name}' is not valid: it must be an object`;
      for (const [member, { is, rule }] of rules) {
        const given = value[member] ?? null;
        if (given !== null && !is(given)) return `'${name}.${member}' is not valid: it must be ${rule}`;
      }
      if (exceedsJsonBytes(value, MAX_OBJECT_BYTES)) {
        return `'${name}' is not valid: it must be at most ${MAX_OBJECT_BYTES} bytes of JSON`;
      }
    }
    standardOf(delta)[name] = value;
    return undefined;
  };
}
