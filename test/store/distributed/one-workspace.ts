/**
 * Statements over whole sets take a workspace with each of their rows: on one Postgres a batch of many workspaces is one
 * transaction. A distributed Postgres has to see which node a statement is for before it plans it. This is the other form
 * of the same statement, for sets of one workspace, given in the same way: the scalar is what the set begins with.
 */

/**
 *     unnest($1::uuid[], $2::text[]) as given (workspace_id, email)
 *     (select ($1::uuid[])[1] as workspace_id, given.* from unnest($2::text[]) as given (email)) as given
 */
const COLUMNS =
  /unnest\(\s*\$(?<place>\d+)::uuid\[\](?:,(?<arrays>[^()]*))?\)(?<ordinality>\s+with ordinality)?\s+as (?<name>\w+) \(\s*workspace_id(?:,(?<columns>[^()]*))?\)/g;

/**
 *     jsonb_to_recordset($1::jsonb) as given (workspace_id uuid, email text)
 *     (select ($1::jsonb #>> '{0,workspace_id}')::uuid as workspace_id, given.*
 *      from jsonb_to_recordset($1::jsonb) as given (email text)) as given
 */
const RECORDS =
  /(?<json>jsonb?)_to_recordset\(\$(?<place>\d+)::jsonb?\) as (?<name>\w+) \((?<before>[^()]*?)\bworkspace_id uuid(?:, )?(?<behind>[^()]*)\)/g;

const known = new Map<string, string>();

/** The form of a statement for sets of one workspace; of one without such sets, itself. */
export function ofOneWorkspace(text: string): string {
  const form = known.get(text) ?? formOf(text);
  known.set(text, form);
  return form;
}

/** Keys of tables that are unique by themselves on one Postgres, and with their workspace where they are distributed. */
const KEYS: [table: string, key: string][] = [
  ['ledger', 'envelope_id'],
  ['cut_envelopes', 'envelope_id'],
  ['outcomes', 'object_id'],
  ['dead_letters', 'id'],
  ['sync_row_errors', 'job_id, number'],
];

/** A workspace that is given as a scalar. */
const SCALAR = /\bworkspace_id = (\$\d+::uuid)\b/g;

/** Workspaces of two tables that are the same. */
const EQUAL = /\b(\w+)\.workspace_id (?:=|is not distinct from) (\w+)\.workspace_id\b/g;

/** A workspace in front of what is looked for in another table. */
const TUPLE = /\((\w+)\.workspace_id, [^()]*\) (?:not )?in \(/g;

function formOf(text: string): string {
  const scalars = new Set<string>([...text.matchAll(SCALAR)].map(([, scalar]) => scalar!));
  let form = text
    .replace(COLUMNS, (...match) => {
      const { place, arrays = '', ordinality = '', name, columns = '' } = match.at(-1);
      const scalar = `($${place}::uuid[])[1]`;
      scalars.add(scalar);
      if (columns.trim() === '') return `(select ${scalar} as workspace_id) as ${name}`;
      const rows = `unnest(${arrays.trim()})${ordinality} as ${name} (${columns.trim()})`;
      return `(select ${scalar} as workspace_id, ${name}.* from ${rows}) as ${name}`;
    })
    .replace(RECORDS, (...match) => {
      const { json, place, name, before, behind } = match.at(-1);
      const scalar = `($${place}::${json} #>> '{0,workspace_id}')::uuid`;
      scalars.add(scalar);
      const rows = `${json}_to_recordset($${place}::${json}) as ${name} (${before}${behind})`;
      return `(select ${scalar} as workspace_id, ${name}.* from ${rows}) as ${name}`;
    });
  for (const [table, key] of KEYS)
    if (text.includes(`insert into ${table} `))
      form = form.replace(`on conflict (${key})`, `on conflict (workspace_id, ${key})`);
  // All workspaces of the statement are the one: each table says so for itself, however deep it stands.
  const [scalar] = scalars;
  if (!scalar) return form;
  return form
    .replace(
      EQUAL,
      (_, one, other) => `${one}.workspace_id = ${scalar} and ${other}.workspace_id = ${scalar}`,
    )
    .replace(TUPLE, (tuple, one) => `${one}.workspace_id = ${scalar} and ${tuple}`);
}
