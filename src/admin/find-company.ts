import { validate } from 'uuid';
import type { Company } from '../generated/prisma/client.ts';
import type { Database } from '../store/database.ts';
import { PENSTOCK } from './command-name.ts';
import { Refusal } from './refusal.ts';

/**
 * The company that a person named, by its name or its id.
 * @throws {Refusal} when there is none.
 */
export async function findCompany({ prisma }: Database, nameOrId: string): Promise<Company> {
  const company =
    (await prisma.company.findUnique({ where: { name: nameOrId } })) ??
    (validate(nameOrId) ? await prisma.company.findUnique({ where: { id: nameOrId } }) : null);
  if (company === null) {
    throw new Refusal(`no company has the name or the id '${nameOrId}'; see ${PENSTOCK} companies list`);
  }
  return company;
}

/** For filters: the id of the named company, or undefined when none is named. */
export async function findCompanyId(database: Database, nameOrId?: string): Promise<string | undefined> {
  return nameOrId === undefined ? undefined : (await findCompany(database, nameOrId)).id;
}
