import { expect, test } from 'vitest';
import { rights } from '../../src/board/access.ts';
import { workspacePermissions } from '../../src/schemas/permissions.ts';

test('every right of the console is opened by permissions of a workspace that SCIM can give', () => {
  for (const [right, names] of Object.entries(rights)) {
    expect(names.length, right).toBeGreaterThan(0);
    expect(
      names.filter((name) => !workspacePermissions.includes(name)),
      right,
    ).toEqual([]);
  }
});
