import { newId } from '../../../src/ids.ts';
import type { Condition } from '../../../src/store/accounts/condition.ts';
import { findAccounts } from '../../../src/store/accounts/find-accounts.ts';
import { ensurePartitions } from '../../../src/store/activity/ensure-partitions.ts';
import { findApiKey } from '../../../src/store/find-api-key.ts';
import { deleteIfIdle } from '../../../src/store/integrations/delete-if-idle.ts';
import { isIntegration } from '../../../src/store/integrations/is-integration.ts';
import { listIntegrations } from '../../../src/store/integrations/list-integrations.ts';
import { listScheduled } from '../../../src/store/integrations/list-scheduled.ts';
import { selectIntegrations } from '../../../src/store/integrations/select-integrations.ts';
import { isMigrated } from '../../../src/store/is-migrated.ts';
import { findScimToken } from '../../../src/store/scim-tokens/find-scim-token.ts';
import { touchScimToken } from '../../../src/store/scim-tokens/touch-scim-token.ts';
import { touchApiKeys } from '../../../src/store/touch-api-keys.ts';
import type { Asking } from './asking.ts';

const value = 'who2@x.com';
const conditions: Condition[] = [
  { op: 'eq', column: 'id', value: newId() },
  ...(['userName', 'externalId', 'givenName', 'familyName', 'department'] as const).map(
    (column): Condition => ({ op: 'eq', column, value }),
  ),
  ...(['userName', 'givenName', 'familyName'] as const).map(
    (column): Condition => ({ op: 'sw', column, value }),
  ),
];

/** Keys, dashboard accounts and integrations, of which a workspace or a company has few. */
export const ofWorkspaces: Asking = (store, { workspaceId, companyId, integrationId, keyHash }) => [
  () => isMigrated(store, 1000),
  () => ensurePartitions(store),
  () => findApiKey(store, keyHash),
  () => touchApiKeys(store, new Map([[newId(), new Date()]])),
  () => findScimToken(store, keyHash),
  () => touchScimToken(store, newId(), new Date()),
  ...conditions.map((condition) => () => findAccounts(store, companyId, condition, { limit: 100 })),
  () => findAccounts(store, companyId, undefined, { limit: 100, after: 50 }),
  () => findAccounts(store, companyId, { op: 'co', column: 'userName', value }, { limit: 100, skip: 1 }),
  () => isIntegration(store, integrationId, workspaceId),
  ...(['older', 'newer'] as const).map(
    (direction) => () => listIntegrations(store, workspaceId, { direction, from: integrationId, size: 10 }),
  ),
  () => listScheduled(store),
  () => selectIntegrations(store, { limit: 10 }),
  () => selectIntegrations(store, { workspaceId, name: 'integration2', limit: 10 }),
  () => deleteIfIdle(store, integrationId),
];
