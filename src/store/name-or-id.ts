import { isUuid } from '../profile/values.ts';

/** Returns the Prisma condition for a row with this name or id. */
export const byNameOrId = (nameOrId: string) => ({
  OR: [{ name: nameOrId }, ...(isUuid(nameOrId) ? [{ id: nameOrId }] : [])],
});
