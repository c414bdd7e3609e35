import type { Json } from '../../profile/json.ts';

/** The center of every example. */
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
