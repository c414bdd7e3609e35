import { rulesOf } from '../schemas/vendor-rules.ts';
import { cdiIntegrations } from './cdi.integrations.ts';
import { cdiJobSyncStatus } from './cdi.job_sync_status.ts';
import { cdiSync } from './cdi.sync.ts';
import { customAttributesGet } from './custom_attributes.get.ts';
import { emailBlacklist, emailBlocklist } from './email.blocklist.ts';
import { emailBounceRemove } from './email.bounce.remove.ts';
import { emailHardBounces } from './email.hard_bounces.ts';
import { emailSpamRemove } from './email.spam.remove.ts';
import { emailStatus } from './email.status.ts';
import { emailUnsubscribe } from './email.unsubscribe.ts';
import { eventsDataSeries } from './events.data_series.ts';
import { eventsGet } from './events.get.ts';
import { eventsList } from './events.list.ts';
import { campaignsList, canvasList, feedList } from './messaging-lists.ts';
import type { Operation, OperationOptions } from './operation.ts';
import { preferenceCenterCreate } from './preference_center.create.ts';
import { preferenceCenterGet } from './preference_center.get.ts';
import { preferenceCenterList } from './preference_center.list.ts';
import { preferenceCenterSave } from './preference_center.save.ts';
import { preferenceCenterUpdate } from './preference_center.update.ts';
import { preferenceCenterUserGet, preferenceCenterUserPost } from './preference_center.user.get.ts';
import { purchasesProductList } from './purchases.product_list.ts';
import { purchasesQuantitySeries } from './purchases.quantity_series.ts';
import { purchasesRevenueSeries } from './purchases.revenue_series.ts';
import { requestsGet } from './requests.get.ts';
import { discoveryOperations } from './scim/discovery.ts';
import { scimUsersCreate } from './scim.users.create.ts';
import { scimUsersDelete } from './scim.users.delete.ts';
import { scimUsersGet } from './scim.users.get.ts';
import { scimUsersList } from './scim.users.list.ts';
import { scimUsersPatch } from './scim.users.patch.ts';
import { scimUsersReplace } from './scim.users.replace.ts';
import { segmentsDetails } from './segments.details.ts';
import { segmentsList } from './segments.list.ts';
import { smsInvalidPhoneNumbersRemove } from './sms.invalid_phone_numbers.remove.ts';
import { smsInvalidPhoneNumbers } from './sms.invalid_phone_numbers.ts';
import { subscriptionGroupsGet } from './subscription.groups.get.ts';
import { subscriptionStatusGet } from './subscription.status.get.ts';
import { subscriptionStatusSet } from './subscription.status.set.ts';
import { subscriptionStatusSetV2 } from './subscription.status.set.v2.ts';
import { usersAliasNew } from './users.alias.new.ts';
import { usersAliasUpdate } from './users.alias.update.ts';
import { usersDelete } from './users.delete.ts';
import { usersExportIds } from './users.export.ids.ts';
import { usersExportSegment } from './users.export.segment.ts';
import { usersExternalIdsRemove } from './users.external_ids.remove.ts';
import { usersExternalIdsRename } from './users.external_ids.rename.ts';
import { usersIdentify } from './users.identify.ts';
import { usersMerge } from './users.merge.ts';
import { usersTrackBulk } from './users.track.bulk.ts';
import { usersTrackSync } from './users.track.sync.ts';
import { usersTrack } from './users.track.ts';

/**
 * Every endpoint, in the order of the specification.
 *
 * @param serviceIdField wire name of the service id
 */
export function allOperations(serviceIdField: string, options: OperationOptions = {}): Operation[] {
  const { rules = rulesOf.spec } = options;
  return [
    usersTrack(serviceIdField, options),
    ...(rules.trackSync === 'present' ? [usersTrackSync(serviceIdField, options)] : []),
    usersTrackBulk(serviceIdField, options),
    usersMerge(rules),
    usersDelete(serviceIdField),
    usersAliasNew(),
    usersAliasUpdate(),
    usersIdentify(rules),
    usersExternalIdsRename(),
    usersExternalIdsRemove(),
    usersExportIds(serviceIdField),
    subscriptionStatusSetV2(),
    subscriptionStatusSet(),
    subscriptionStatusGet(),
    subscriptionGroupsGet(),
    emailStatus(),
    emailBlocklist(),
    emailBlacklist(),
    emailUnsubscribe(),
    emailHardBounces(),
    emailBounceRemove(),
    emailSpamRemove(),
    smsInvalidPhoneNumbers(),
    smsInvalidPhoneNumbersRemove(),
    eventsList(),
    eventsGet(),
    eventsDataSeries(),
    customAttributesGet(),
    purchasesProductList(),
    purchasesQuantitySeries(),
    purchasesRevenueSeries(),
    segmentsList(),
    segmentsDetails(),
    usersExportSegment(serviceIdField),
    campaignsList(),
    canvasList(),
    feedList(),
    cdiIntegrations(),
    cdiJobSyncStatus(),
    cdiSync(),
    preferenceCenterList(),
    preferenceCenterCreate(),
    preferenceCenterGet(),
    preferenceCenterUpdate(),
    preferenceCenterSave(),
    preferenceCenterUserGet(),
    preferenceCenterUserPost(),
    scimUsersGet(),
    scimUsersList(),
    scimUsersCreate(),
    scimUsersReplace(),
    scimUsersPatch(),
    scimUsersDelete(),
    ...discoveryOperations(),
    requestsGet(serviceIdField),
  ];
}
