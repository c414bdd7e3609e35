import type { Company } from '../generated/prisma/client.ts';
import { newId } from '../platform/ids.ts';
import { change } from './change.ts';
import { name } from './fields.ts';
import { refuseTaken } from './refusal.ts';
import { creation, describeResource, iso, keyset, readById } from './resource.ts';

export const companies = describeResource<Company>({
  noun: 'companies',
  one: 'company',
  many: 'companies',
  title: 'Companies',
  sentence: 'Create and list companies. A company owns workspaces, console accounts and SCIM tokens.',
  example: 'companies list',
  lead: 'A company owns workspaces, console accounts and SCIM tokens.',
  scope: 'installation',
  permit: 'operator',
  columns: [
    { name: 'company_id', title: 'Id', kind: 'id', value: ({ id }) => id },
    { name: 'name', value: (company) => company.name },
    { name: 'created_at', title: 'Created', kind: 'time', value: ({ createdAt }) => iso(createdAt) },
  ],
  listing: { sentence: 'List the companies, oldest first.', example: 'companies list --json' },
  list: ({ database }, page) =>
    database.prisma.company.findMany(keyset('companyId', { ...page, owners: undefined })),
  find: async ({ database }, id) =>
    (await database.prisma.company.findUnique({ where: { id } })) ?? undefined,
  nameOf: (company) => company.name,
  ownerOf: () => '',
  naming: readById('company'),
  empty: 'Every workspace belongs to a company.',
  creation: creation({
    verb: 'create',
    button: 'Create company',
    sentence: 'Create a company.',
    example: 'companies create --name "Shop and Sons"',
    permit: 'operator',
    done: 'Created.',
    fields: { name: name('name, unique among companies') },
    async run(context, { values: { name: called } }) {
      const one = await change(context, async (tx) => {
        const result = await tx.company.create({ data: { id: newId(), name: called } });
        const subject = { kind: 'company', id: result.id };
        const entry = { action: 'companies.create' as const, subject, companyId: result.id };
        return { result, entries: [{ ...entry, detail: { name: called } }] };
      }).catch(
        refuseTaken(`a company with the name '${called}' already exists; choose another name`, 'name'),
      );
      return { one };
    },
  }),
  actions: [],
});
