import { expect, test } from 'vitest';
import { rights } from '../../src/board/access.ts';
import { workspacePermissions } from '../../src/schemas/permissions.ts';

test('every console right can be granted by a workspace permission of SCIM', () => {
  for (const [right, names] of Object.entries(rights)) {
    expect(names.length, right).toBeGreaterThan(0);
    expect(
      names.filter((name) => !workspacePermissions.includes(name)),
      right,
    ).toEqual([]);
  }
});
