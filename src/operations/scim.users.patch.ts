import type { Json } from '../profile/json.ts';
import { compile, describeError } from '../schemas/compile.ts';
import type { DirectOperation } from './operation.ts';
import { createSchema, EXAMPLE_ID, exampleResource, resourceSchema } from './scim/account-schema.ts';
import { changeAccount } from './scim/change-account.ts';
import { invalid, PATCH_OP, scim } from './scim/messages.ts';
import { applyPatch, type GivenOperation, patchSchema } from './scim/patch.ts';
import { projectionQuery } from './scim/query.ts';

/** Validates the patched account with the rules for a new one. */
const check = compile<Record<string, Json>>(createSchema);

/** PATCH /scim/v2/Users/{id}: changes parts of a console account (RFC 7644 §3.5.2). */
export function scimUsersPatch(): DirectOperation {
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.patch',
    method: 'PATCH',
    path: '/scim/v2/Users/:id',
    summary: 'Change parts of a console account',
    description:
      'Either all operations take effect or none. `active: false` deactivates the account: it is signed out immediately and cannot sign in. With `If-Match`, the account is changed only if it has the given version.',
    body: patchSchema,
    query: projectionQuery,
    replies: { 200: { description: 'The account as it is now.', schema: resourceSchema } },
    refusals: ['scimUserNotFound', 'scimVersionChanged'],
    example: {
      params: { id: EXAMPLE_ID },
      body: { schemas: [PATCH_OP], Operations: [{ op: 'replace', path: 'active', value: false }] },
      query: {},
      reply: { ...exampleResource, active: false },
    },

    handle: (caller, input, resources) =>
      changeAccount({ caller, input, resources }, async (_current, resource) => {
        const patched = applyPatch(await resource(), input.body.Operations as GivenOperation[]);
        if (!check(patched)) throw invalid(describeError(check.errors![0]!).error);
        return patched;
      }),
  };
}
