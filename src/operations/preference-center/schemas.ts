import { grouped } from '../../platform/format.ts';
import { MAX_TEMPLATE } from '../../preferences/page.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/compile.ts';

const states = ['active', 'draft'];

/** Schema of an optional member. Clients send null for an absent value. */
const optional = (type: string, rule: string, rest: Schema): Schema => ({
  type: [type, 'null'],
  rule,
  ...rest,
});

const template = (description: string): Schema => ({
  type: 'string',
  minLength: 1,
  maxLength: MAX_TEMPLATE,
  description: `${description} A Liquid template of 1 to ${grouped(MAX_TEMPLATE)} characters.`,
  rule: `it must be a string of 1 to ${MAX_TEMPLATE} characters`,
});

const text = (description: string): Schema => ({
  type: 'string',
  maxLength: 2048,
  description,
  rule: 'it must be a string of at most 2048 characters',
});

const linkTag: Schema = {
  type: 'object',
  description: 'A link element in the head of the page.',
  required: ['rel', 'href'],
  additionalProperties: false,
  properties: {
    rel: {
      enum: ['icon', 'shortcut icon', 'apple-touch-icon'],
      rule: 'it must be icon, shortcut icon or apple-touch-icon',
    },
    type: {
      enum: ['image/png', 'image/svg', 'image/gif', 'image/x-icon', 'image/svg+xml', 'mask-icon'],
      rule: 'it must be image/png, image/svg, image/gif, image/x-icon, image/svg+xml or mask-icon',
    },
    sizes: text('Sizes of the icon.'),
    color: text('Colour of a mask-icon.'),
    href: { ...text('Address of the icon.'), minLength: 1 },
  },
  rule: "it must be an object with 'rel' and 'href', and no others than 'type', 'sizes' and 'color'",
};

const options = optional('object', "it must be an object with 'meta-viewport-content' and 'links-tags'", {
  // PHP encodes an empty map as an empty array.
  type: ['object', 'array', 'null'],
  maxItems: 0,
  description: 'Further elements of the head of the page.',
  properties: {
    'meta-viewport-content': text('Content of the viewport meta element.'),
    'links-tags': {
      type: 'array',
      maxItems: 20,
      items: linkTag,
      description: 'Icons of the page.',
      rule: 'it must be an array of at most 20 objects',
    },
  },
});

const contents: Record<string, Schema> = {
  preference_center_title: optional('string', 'it must be a string of 1 to 255 characters', {
    minLength: 1,
    maxLength: 255,
    description: 'Title of the page, by default `Preference Center`.',
  }),
  preference_center_page_html: template('HTML of the page.'),
  confirmation_page_html: template('HTML of the confirmation page.'),
  options,
  state: {
    enum: [...states, null],
    description: 'Links open only active preference centers. A new preference center is active by default.',
    rule: 'it must be active or draft',
  },
};

const name: Schema = {
  type: 'string',
  maxLength: 255,
  pattern: '^[A-Za-z0-9_-]+$',
  description: 'Letters, digits, `-` and `_`. Unique in the workspace. You cannot change it later.',
  rule: 'it must be 1 to 255 letters, digits, - and _, without spaces',
};

const htmls = ['preference_center_page_html', 'confirmation_page_html'];

export const createBody: Schema = {
  type: 'object',
  required: ['name', ...htmls],
  properties: { name, ...contents },
};

/** Schema of an update. An update ignores the name, so the rule for names is in the schema of a new center. */
export const updateBody: Schema = {
  type: 'object',
  required: htmls,
  properties: {
    name: { description: 'Ignored: the name of a preference center cannot change.' },
    ...contents,
  },
};

export const saveBody: Schema = {
  type: 'object',
  required: htmls,
  properties: {
    name: {
      description: 'Required if no preference center has this id.',
    },
    ...contents,
  },
};

const id: Schema = { type: 'string', format: 'uuid', description: 'Id of the preference center.' };
const time = (description: string): Schema => ({ type: 'string', format: 'date-time', description });

const stamps = {
  created_at: time('Time of creation.'),
  updated_at: time('Time of the last change.'),
};

export const createdReply: Schema = {
  type: 'object',
  required: ['preference_center_api_id', 'liquid_tag', 'created_at', 'updated_at', 'message'],
  properties: {
    preference_center_api_id: id,
    liquid_tag: { type: 'string', description: 'The tag for its link in a message.' },
    ...stamps,
    message: { const: 'success' },
  },
};

export const updatedReply: Schema = {
  type: 'object',
  required: ['preference_center_api_id', 'created_at', 'updated_at', 'message'],
  properties: { preference_center_api_id: id, ...stamps, message: { const: 'success' } },
};

const listed = { name: { type: 'string' }, preference_center_api_id: id, ...stamps };

export const listReply: Schema = {
  type: 'object',
  required: ['preference_centers'],
  properties: {
    preference_centers: {
      type: 'array',
      items: { type: 'object', required: Object.keys(listed), properties: listed },
      description: 'Oldest first.',
    },
  },
};

const viewed = {
  ...listed,
  preference_center_title: { type: 'string' },
  preference_center_page_html: { type: 'string' },
  confirmation_page_html: { type: 'string' },
  redirect_page_html: { type: 'null', description: 'Always null.' },
  preference_center_options: { type: 'object', additionalProperties: true },
  state: { enum: states },
};

export const viewReply: Schema = { type: 'object', required: Object.keys(viewed), properties: viewed };

/** Id of the center in the documented examples. */
export const exampleId = '019c13ec-a2e2-7c24-9a1e-7d30b4f0c2e1';

export const exampleContents = {
  preference_center_title: 'Your choices',
  preference_center_page_html:
    '<form action="{{preference_center_submit_url}}" method="post"><label><input type="checkbox" name="{% form_field_name :email_global_state %}" value="subscribed"{% if subscribed_state.${email_global} != \'unsubscribed\' %} checked{% endif %}> Send me email to {{${email_address}}}</label> <button>Save</button></form>',
  confirmation_page_html: '<p>Saved. Your email: {{subscribed_state.${email_global}}}.</p>',
  options: { 'meta-viewport-content': 'width=device-width, initial-scale=1' },
  state: 'active',
} satisfies Record<string, Json>;

export const exampleStamps = {
  preference_center_api_id: exampleId,
  created_at: '2026-01-31T12:00:00.000Z',
  updated_at: '2026-01-31T12:00:00.000Z',
};
