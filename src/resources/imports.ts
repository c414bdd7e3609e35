import { dropImport, type ListedImport, listImports, withImportLock } from '../store/imports.ts';
import { Refusal } from './refusal.ts';
import { action, describeResource, iso, listOfOwners, type Resource, readById, rowOf } from './resource.ts';

const stateOf = ({ finishedAt }: ListedImport) => (finishedAt ? 'imported' : 'unfinished');

export const imports: Resource<ListedImport> = describeResource<ListedImport>({
  noun: 'import',
  path: 'imports',
  one: 'import',
  many: 'imports',
  title: 'Imports',
  sentence: 'List the records of imports, and delete one.',
  example: 'import list --workspace default',
  lead: 'Files that penstock import has read, with the number of rows and objects. An unfinished import continues with the same command. To import a file, run on the machine that has it: penstock import users.csv --workspace default --type users',
  scope: 'workspace',
  permit: 'syncs',
  nameTitle: 'File',
  columns: [
    { name: 'id', title: 'Id', kind: 'id', value: ({ id }) => id, not: ['list'] },
    { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace },
    { name: 'file', value: ({ file }) => file },
    {
      name: 'state',
      title: 'State',
      value: stateOf,
      shown: (one) => ({ badge: stateOf(one), tone: one.finishedAt ? 'good' : 'warn' }),
    },
    { name: 'rows', title: 'Rows', kind: 'number', value: ({ rows }) => rows },
    { name: 'accepted', title: 'Accepted objects', kind: 'number', value: ({ accepted }) => accepted },
    { name: 'refused', title: 'Refused rows', kind: 'number', value: ({ refused }) => refused },
    { name: 'started_at', title: 'Started', kind: 'time', value: ({ startedAt }) => iso(startedAt) },
    {
      name: 'finished_at',
      title: 'Finished',
      kind: 'time',
      value: ({ finishedAt }) => iso(finishedAt),
      shown: ({ finishedAt }) => (finishedAt ? { at: finishedAt } : { text: 'not yet' }),
    },
  ],
  listing: { sentence: 'List the imports, oldest first.', example: 'import list --workspace default --json' },
  list: ({ database }, page) => listOfOwners(page, (part) => listImports(database, part)),
  find: async ({ database }, id) => (await listImports(database, { id, limit: 1 }))[0],
  nameOf: ({ file }) => file,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: readById('import'),
  empty: 'Import files with penstock import.',
  actions: [
    action({
      verb: 'drop',
      button: 'Delete record',
      sentence:
        'Delete the record of an import. The same file then starts again from its first row, and rows that are not yet enqueued are lost.',
      example: 'import drop 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
      // Files and their imports belong to the operator, and not to a workspace.
      permit: 'operator',
      lead: 'The same file then starts again from its first row, and rows that are not yet enqueued are lost.',
      fields: {},
      isDanger: true,
      confirm: ({ file }: ListedImport) => file,
      done: 'The record was deleted.',
      async run({ database, actor }, { one }) {
        const dropped = await withImportLock(database.pool, one, async () => {
          await dropImport(database, one, actor);
          return true;
        });
        if (!dropped)
          throw new Refusal(
            `${one.file}: a process is importing it; stop that process first`,
            undefined,
            409,
          );
        return { row: { ...rowOf(imports, one), state: 'dropped' } };
      },
    }),
  ],
});
