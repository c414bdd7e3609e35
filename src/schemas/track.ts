import type { Schema } from './compile.ts';

const optionalText = (description: string) =>
  ({ type: ['string', 'null'], description, rule: 'it must be a string' }) as const;

export const userAlias = {
  type: 'object',
  description: 'Names a user who need not have an external id.',
  required: ['alias_name', 'alias_label'],
  properties: {
    alias_name: { type: 'string', minLength: 1, description: 'Name of the alias, at most 236 bytes.' },
    alias_label: { type: 'string', minLength: 1, description: 'Kind of the alias, at most 236 bytes.' },
  },
} as const;

/** Empty as well where another identifier addresses the object; one that does is judged as an identifier. */
const optionalPart = (description: string) =>
  ({ type: ['string', 'null'], description, rule: 'it must be a non-empty string' }) as const;

/** An object or null. An empty array is an empty object, since PHP writes an empty map so. */
const optionalObject = { type: ['object', 'array', 'null'], maxItems: 0 } as const;

/** The identifiers that every object may carry; one is required. */
function identifiers(serviceIdField: string): Record<string, Schema> {
  return {
    external_id: {
      type: ['string', 'integer', 'null'],
      description: 'The id that you gave the user; at most 987 bytes. Comes before every other identifier.',
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
        'Addresses the most recently updated profile with this address, if no identifier above is given; an empty text is none.',
      ),
      refusal: { type: "The value provided for the 'email' field is not a valid email." },
    },
    phone: {
      type: ['string', 'integer', 'null'],
      description: 'E.164; addresses a profile if no identifier above is given; an empty text is none.',
      rule: 'it must be a phone number in E.164 format',
    },
    _update_existing_only: {
      type: ['boolean', 'null'],
      description:
        'true: a user who does not exist is not created. With a user_alias only an explicit false creates an alias-only profile.',
      rule: 'it must be a boolean',
    },
  };
}

const time: Schema = {
  type: 'string',
  description: "ISO 8601, or yyyy-MM-dd'T'HH:mm:ss:SSSZ. A time in the future becomes now.",
  rule: "it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ",
};

const properties: Schema = {
  ...optionalObject,
  description:
    'Names of 1 to 255 characters without a leading $; strings of at most 255 characters; longer ones are cut; no times inside arrays; objects are kept as strings; at most 50 KB with arrays or objects.',
  rule: 'it must be an object',
};

export function eventSchema(serviceIdField: string): Schema {
  return {
    title: 'Event',
    type: 'object',
    required: ['name', 'time'],
    properties: {
      ...identifiers(serviceIdField),
      name: {
        type: 'string',
        minLength: 1,
        description: 'What happened, in 1 to 255 characters; more are cut.',
        rule: 'it must be a string of 1 to 255 characters',
      },
      time,
      app_id: optionalText('The app in which it happened.'),
      properties,
    },
    rule: 'it must be an object',
  };
}

export function purchaseSchema(serviceIdField: string): Schema {
  return {
    title: 'Purchase',
    type: 'object',
    required: ['product_id', 'currency', 'price', 'time'],
    properties: {
      ...identifiers(serviceIdField),
      product_id: {
        type: ['string', 'integer'],
        minLength: 1,
        description: 'What was bought, in 1 to 255 characters; more are cut. An integer is its digits.',
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
          'Per piece, in the base unit of the currency (dollars, not cents); negative for a refund. Also as a numeric string.',
        rule: 'it must be a number',
      },
      // Clients match on this text; it stands without a rule, as recorded.
      quantity: {
        type: ['integer', 'string', 'null'],
        minimum: 1,
        maximum: 100,
        description: '1 to 100; 1 if absent. Also as a numeric string.',
        rule: '',
      },
      time,
      app_id: optionalText('The app in which it was bought.'),
      properties,
    },
    rule: 'it must be an object',
  };
}

export function attributesSchema(serviceIdField: string): Schema {
  return {
    title: 'Attributes',
    type: 'object',
    description:
      'Standard attributes by name, custom attributes by any other name; null removes. Custom values: string, number, boolean, array, object, or an operation: {"inc": 1}, {"add": [..]}, {"remove": [..]}, {"$add": [..]}, {"$update": [..]}, {"$remove": [..]}. Of names and strings the first 255 characters count. A standard attribute that cannot be read is left out; a bad email, subscription or push token refuses the object.',
    properties: {
      ...identifiers(serviceIdField),
      _merge_objects: {
        type: ['boolean', 'null'],
        description: 'true: objects are merged into the stored ones instead of replacing them.',
        rule: 'it must be a boolean',
      },
      push_token_import: {
        type: ['boolean', 'null'],
        description:
          "true: each push token that nobody has becomes an anonymous profile with this object's attributes; external_id, user_alias and the service's own id may not be given, and email and phone are only attributes.",
        rule: 'it must be a boolean',
      },
    },
    rule: 'it must be an object',
  };
}
