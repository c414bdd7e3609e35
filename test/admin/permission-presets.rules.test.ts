import { describe, expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import { settings } from '../../src/platform/config.ts';
import { type Permission, permissionPresets, permissions } from '../../src/schemas/permissions.ts';
import { rulesOf } from '../../src/schemas/vendor-rules.ts';

const operations = allOperations(settings.SERVICE_ID_FIELD.default, { rules: rulesOf.current });
const opened = (preset: keyof typeof permissionPresets) => {
  const given: readonly Permission[] = permissionPresets[preset].permissions;
  return operations.filter(({ permission }) => given.some((one) => one === permission));
};

describe('presets of API keys', () => {
  test('every preset has permissions that exist, each once', () => {
    for (const { permissions: given } of Object.values(permissionPresets)) {
      expect(new Set(given).size).toBe(given.length);
      expect(permissions).toEqual(expect.arrayContaining([...given]));
    }
  });

  test('the preset read-only opens no operation that changes data', () => {
    const changing = opened('read-only').filter(({ method }) => method !== 'GET');
    expect(changing.map(({ path }) => path)).toEqual(['/users/export/ids']);
    // A link to a preference center changes the states of its user.
    expect(permissionPresets['read-only'].permissions).not.toContain('preference_center.user.get');
  });

  test('the preset import cannot read or delete users', () => {
    expect(opened('import').map(({ path }) => path)).toEqual([
      '/users/track',
      '/users/track/bulk',
      '/users/alias/new',
      '/users/identify',
      '/v2/subscription/status/set',
      '/subscription/status/set',
      '/email/status',
    ]);
  });

  test('the preset server does not open syncs or exports of segments', () => {
    const paths = opened('server').map(({ path }) => path);
    expect(paths).toEqual(expect.arrayContaining(['/users/track', '/users/delete', '/users/export/ids']));
    expect(paths.filter((path) => /^\/cdi|segment/.test(path))).toEqual([]);
  });
});
