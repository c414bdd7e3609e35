/**
 * What an API key can be allowed to do, by the names that clients know. A permission may be given before
 * its endpoint exists.
 */
export const permissions = [
  'users.track',
  'users.track.bulk',
  'users.track.sync',
  'users.delete',
  'users.alias.new',
  'users.alias.update',
  'users.identify',
  'users.merge',
  'users.external_ids.rename',
  'users.external_ids.remove',
  'users.export.ids',
  'users.export.segment',
  'users.export.global_control_group',
  'email.unsubscribe',
  'email.status',
  'email.hard_bounces',
  'email.bounce.remove',
  'email.spam.remove',
  'email.blacklist',
  'subscription.status.set',
  'subscription.status.get',
  'subscription.groups.get',
  'sms.invalid_phone_numbers',
  'sms.invalid_phone_numbers.remove',
  'preference_center.list',
  'preference_center.get',
  'preference_center.update',
  'preference_center.user.get',
  'cdi.integration_list',
  'cdi.integration_job_status',
  'cdi.integration_sync',
  'events.list',
  'events.data_series',
  'purchases.product_list',
  'purchases.quantity_series',
  'purchases.revenue_series',
] as const;

export type Permission = (typeof permissions)[number];
