import { uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

export interface RenamedAlias {
  workspace_id: string;
  alias_label: string;
  old_alias_name: string;
  new_alias_name: string;
}

/** By primary key. A name that another lane gave away meanwhile raises 23505, and the batch is tried again. */
const statement = `
  update user_aliases set alias_name = given.new_alias_name
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
    as given (workspace_id, alias_label, old_alias_name, new_alias_name)
  where user_aliases.workspace_id = given.workspace_id
    and user_aliases.alias_label = given.alias_label
    and user_aliases.alias_name = given.old_alias_name`;

export async function renameAliases(tx: Connection, aliases: RenamedAlias[]): Promise<void> {
  await tx.query({
    name: 'rename-aliases',
    text: statement,
    values: [
      uuidArray(aliases, (row) => row.workspace_id),
      aliases.map((row) => row.alias_label),
      aliases.map((row) => row.old_alias_name),
      aliases.map((row) => row.new_alias_name),
    ],
  });
}
