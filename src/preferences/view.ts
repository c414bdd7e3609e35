import type { Json } from '../profile/json.ts';
import type { GlobalState, GroupStateName } from './form-fields.ts';

/** What a template is told of its user. Plain data: it is handed to another process. */
export interface View {
  /** By the names that templates know; see `attributeNames`. */
  attributes: Record<string, string>;
  customAttributes: Record<string, Json>;
  emailGlobal: GlobalState;
  /** By group id. */
  groups: Record<string, GroupStateName>;
  submitUrl: string;
}

/** The attributes that a template may name as `${…}`, with the stored member that each of them shows. */
export const attributeNames: Record<string, string> = {
  email_address: 'email',
  email: 'email',
  user_id: 'external_id',
  external_id: 'external_id',
  first_name: 'first_name',
  last_name: 'last_name',
  phone_number: 'phone',
  phone: 'phone',
  date_of_birth: 'dob',
  dob: 'dob',
  city: 'home_city',
  home_city: 'home_city',
  country: 'country',
  language: 'language',
  time_zone: 'time_zone',
  gender: 'gender',
};

/** The user of a trial: everything that a template may ask for has some value. */
export const sampleView: View = {
  attributes: Object.fromEntries(Object.keys(attributeNames).map((name) => [name, 'sample'])),
  customAttributes: {},
  emailGlobal: 'subscribed',
  groups: {},
  submitUrl: 'https://penstock.example/preferences/sample',
};
