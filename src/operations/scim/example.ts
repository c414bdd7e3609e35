import type { Json } from '../../profile/json.ts';
import { USER } from './messages.ts';

/** Of the documentation. */
export const EXAMPLE_ID = '019c13ec-a2e2-7b61-8f0c-55a3d7e9c210';
const WORKSPACE_ID = '019c13ec-9a10-7c1e-b0d4-3f5a6c7d8e90';

export const exampleGiven: Record<string, Json> = {
  schemas: [USER],
  userName: 'ada@example.com',
  name: { givenName: 'Ada', familyName: 'Lovelace' },
  department: 'engineering',
  permissions: {
    companyPermissions: ['manage_company_settings'],
    appGroup: [{ appGroupName: 'default', appGroupPermissions: ['basic_access', 'export_user_data'] }],
  },
};

/** The same, as it is answered. */
export const exampleResource: Record<string, Json> = {
  ...exampleGiven,
  id: EXAMPLE_ID,
  active: true,
  lastSignInAt: 'N/A',
  permissions: {
    companyPermissions: ['manage_company_settings'],
    appGroup: [
      {
        appGroupId: WORKSPACE_ID,
        appGroupName: 'default',
        appGroupPermissions: ['basic_access', 'export_user_data'],
        team: [],
      },
    ],
  },
  meta: {
    resourceType: 'User',
    created: '2026-01-31T12:00:00.000Z',
    lastModified: '2026-01-31T12:00:00.000Z',
    location: `https://penstock.example/scim/v2/Users/${EXAMPLE_ID}`,
    version: 'W/"1"',
  },
};
