import { MAX_PROPERTY_BYTES } from '../profile/properties.ts';
import type { Schema } from './compile.ts';
import { rulesOf, type VendorRules } from './vendor-rules.ts';

const optionalText = (description: string) =>
  ({ type: ['string', 'null'], description, rule: 'it must be a string' }) as const;

export const userAlias = {
  type: 'object',
  description: 'A second identifier of a user, also of a user without an external id.',
  required: ['alias_name', 'alias_label'],
  properties: {
    alias_name: { type: 'string', minLength: 1, description: 'Name of the alias, at most 236 bytes.' },
    alias_label: { type: 'string', minLength: 1, description: 'Kind of the alias, at most 236 bytes.' },
  },
} as const;

/**
 * Also allowed to be empty, if another identifier addresses the object. If it addresses the object itself, it
 * is validated as an identifier.
 */
const optionalPart = (description: string) =>
  ({ type: ['string', 'null'], description, rule: 'it must be a non-empty string' }) as const;

/**
 * An object or null. An empty array counts as an empty object, because PHP encodes an empty map as an array.
 */
const optionalObject = { type: ['object', 'array', 'null'], maxItems: 0 } as const;

/** The identifiers that every object may carry; one is required. */
function identifiers(serviceIdField: string, { primaryIdentifiers }: VendorRules): Record<string, Schema> {
  const others =
    primaryIdentifiers === 'one'
      ? `An object with \`user_alias\` or \`${serviceIdField}\` as well is refused.`
      : 'It takes precedence over every other identifier.';
  return {
    external_id: {
      type: ['string', 'integer', 'null'],
      description: `The id that you gave the user, at most 987 bytes. ${others}`,
      rule: 'it must be a string',
    },
    user_alias: {
      ...userAlias,
      ...optionalObject,
      required: [],
      properties: {
        alias_name: optionalPart('Name of the alias, at most 236 bytes.'),
        alias_label: optionalPart('Kind of the alias, at most 236 bytes.'),
      },
      rule: "it must be an object with 'alias_name' and 'alias_label'",
    },
    [serviceIdField]: {
      type: ['string', 'null'],
      description: "The service's own id of an existing user: 24 hexadecimal digits.",
      rule: 'it must be a string',
    },
    email: {
      ...optionalText(
        'If none of the identifiers above is given, identifies the most recently updated user with this address. An empty string counts as absent.',
      ),
      refusal: { type: "The value provided for the 'email' field is not a valid email." },
    },
    phone: {
      type: ['string', 'integer', 'null'],
      description:
        'A phone number in E.164. If none of the identifiers above is given, identifies the user. An empty string counts as absent.',
      rule: 'it must be a phone number in E.164 format',
    },
    _update_existing_only: {
      type: ['boolean', 'null'],
      description:
        'true: only an existing user is updated. With a user_alias, an alias-only user is created only if this is false.',
      rule: 'it must be a boolean',
    },
  };
}

const time: Schema = {
  type: 'string',
  description: "ISO 8601, or yyyy-MM-dd'T'HH:mm:ss:SSSZ. A time in the future becomes now.",
  rule: "it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ",
};

const propertiesOf = (maxBytes: number): Schema => ({
  ...optionalObject,
  description: `Names have 1 to 255 characters and do not start with $. Strings have at most 255 characters. Longer names and strings are cut. Arrays must not contain times. Objects are stored as strings. With arrays or objects, the properties can have at most ${maxBytes / 1024} KB.`,
  rule: 'it must be an object',
});

export function eventSchema(serviceIdField: string, rules: VendorRules = rulesOf.spec): Schema {
  return {
    title: 'Event',
    type: 'object',
    required: ['name', 'time'],
    properties: {
      ...identifiers(serviceIdField, rules),
      name: {
        type: 'string',
        minLength: 1,
        description: 'Name of the event, 1 to 255 characters. Longer names are cut.',
        rule: 'it must be a string of 1 to 255 characters',
      },
      time,
      app_id: optionalText('The app in which the event happened.'),
      properties: propertiesOf(rules.eventPropertyBytes),
    },
    rule: 'it must be an object',
  };
}

export function purchaseSchema(serviceIdField: string, rules: VendorRules = rulesOf.spec): Schema {
  return {
    title: 'Purchase',
    type: 'object',
    required: ['product_id', 'currency', 'price', 'time'],
    properties: {
      ...identifiers(serviceIdField, rules),
      product_id: {
        type: ['string', 'integer'],
        minLength: 1,
        description:
          'Id of the product, 1 to 255 characters. Longer ids are cut. An integer is stored as its digits.',
        rule: 'it must be a string of 1 to 255 characters',
      },
      currency: {
        type: 'string',
        description: 'ISO 4217 code.',
        rule: 'it must be an ISO 4217 currency code',
      },
      price: {
        type: ['number', 'string'],
        description:
          'Price of one item in the base unit of the currency (dollars, not cents), negative for a refund. A number or a numeric string.',
        rule: 'it must be a number',
      },
      // Clients match on this text, so it has no rule, like the recorded response.
      quantity: {
        type: ['integer', 'string', 'null'],
        minimum: 1,
        maximum: 100,
        description: 'Number of items, 1 to 100, by default 1. A number or a numeric string.',
        rule: '',
      },
      time,
      app_id: optionalText('The app in which the user bought the product.'),
      properties: propertiesOf(MAX_PROPERTY_BYTES),
    },
    rule: 'it must be an object',
  };
}

export function attributesSchema(serviceIdField: string, rules: VendorRules = rulesOf.spec): Schema {
  return {
    title: 'Attributes',
    type: 'object',
    description:
      'Standard attributes by name, custom attributes by any other name; null removes. Custom values: string, number, boolean, array, object, or an operation: {"inc": 1}, {"add": [..]}, {"remove": [..]}, {"$add": [..]}, {"$update": [..]}, {"$remove": [..]}. Names and strings are cut to 255 characters. A standard attribute that is not valid is omitted. An object with an invalid email address, subscription or push token is refused.',
    properties: {
      ...identifiers(serviceIdField, rules),
      _merge_objects: {
        type: ['boolean', 'null'],
        description: 'true: objects are merged into the stored ones instead of replacing them.',
        rule: 'it must be a boolean',
      },
      push_token_import: {
        type: ['boolean', 'null'],
        description:
          "true: each push token that no user has becomes an anonymous user with this object's attributes. external_id, user_alias and the service id must be absent. email and phone are stored as attributes and identify no user.",
        rule: 'it must be a boolean',
      },
    },
    rule: 'it must be an object',
  };
}
