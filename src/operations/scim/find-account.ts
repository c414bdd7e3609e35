import { validate } from 'uuid';
import type { ErrorName } from '../../errors.ts';
import type { Database } from '../../store/database.ts';
import type { AboutRequest, Caller, DirectInput } from '../operation.ts';
import type { Account } from './resource.ts';
import { ScimError } from './scim-error.ts';

/** The company whose SCIM token the caller has. */
export function companyOf({ companyId }: Caller): string {
  if (companyId === undefined) throw new TypeError('an operation of SCIM was asked without a SCIM token');
  return companyId;
}

export function requestOf({ request }: DirectInput): AboutRequest {
  return request ?? { baseUrl: '' };
}

/** An account of the company. @throws {ScimError} with the given entry when the company has no such account */
export async function findAccount(
  prisma: Database['prisma'],
  companyId: string,
  id: string,
  missing: ErrorName,
): Promise<Account> {
  const account = validate(id) ? await prisma.account.findFirst({ where: { id, companyId } }) : null;
  if (account === null) throw new ScimError(missing);
  return account;
}
