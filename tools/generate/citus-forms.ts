import { readdirSync } from 'node:fs';
import path from 'node:path';
import { loadModule, parseSync } from 'libpg-query';
import { NIL_UUID } from '../../src/platform/ids.ts';
import { distributed, views } from '../../src/store/distributed-tables.ts';
import { type Form, statementsWithForm } from '../../src/store/one-workspace.ts';

await loadModule();

/** A node of the parser's tree. Its `location` is a byte position in the text, absent if the position is 0. */
// biome-ignore lint/suspicious/noExplicitAny: the tree has a type for each of some hundred kinds of nodes.
type Node = any;

/** A node with the member or kind under which its parent has it. */
interface Visited {
  kind: string;
  node: Node;
  parent: Visited | undefined;
}

/** A change of the text from `start` to `end`. */
interface Edit {
  start: number;
  end: number;
  text: string;
  /** Text in the declared form, if it differs. */
  declared?: string;
}

/** A set of rows that has a workspace in each row. */
interface SetOfRows {
  edit: Edit;
  /** SQL of the workspace in the form. */
  scalar: string;
  /** Index (from 0) of the parameter. */
  index: number;
  /** Member of a JSON row that has its workspace; absent for arrays. */
  member?: string;
}

/** Columns that have the workspace of a row in a set. */
const WORKSPACE = ['workspace_id', 'owner_id', 'workspaceId'];

/**
 * Keys that are unique by themselves on a single Postgres, and together with the workspace if the tables are
 * distributed.
 */
const KEYS: Record<string, string> = {
  cut_envelopes: 'envelope_id',
  outcomes: 'object_id',
  dead_letters: 'id',
  sync_row_errors: 'job_id, number',
};

/** Views that exclude rows of deleted users, with their tables. */
const VIEWED: Record<string, string> = {
  kept_dead_letters: 'dead_letters',
  kept_row_errors: 'sync_row_errors',
};

/** Returns the text of generated/citus-forms.json: each statement of `withCitusForm` with its form for Citus. */
export async function citusForms(): Promise<string> {
  const folder = path.join(import.meta.dirname, '../../src/store');
  const extension = path.extname(import.meta.filename);
  for (const name of readdirSync(folder)) if (name.endsWith(extension)) await import(path.join(folder, name));
  const forms = [...statementsWithForm].sort().map((text): [string, Form] => {
    const form = formOf(text);
    if (form.text === text)
      throw new Error(`withCitusForm is not needed, because Citus needs no change of: ${text}`);
    return [text, form];
  });
  return `${JSON.stringify(Object.fromEntries(forms), null, 2)}\n`;
}

/**
 * Returns the form of a statement for one workspace, which a distributed Postgres can plan: sets of rows get the
 * workspace as a scalar parameter, and each comparison of two workspaces becomes a comparison with the scalar.
 * Returns the statement unchanged if it has no distributed table.
 *
 * @throws {Error} if the statement is not SQL, or has a set that cannot be changed
 */
export function formOf(statement: string): Form {
  // One character for each byte, because the parser counts bytes.
  const sql = Buffer.from(statement).toString('latin1');
  const visited = [...visit(parseSync(statement).stmts, undefined)];
  const of = (kind: string) => visited.filter((one) => one.kind === kind);
  const tables = visited.filter(({ kind }) => kind === 'RangeVar' || kind === 'relation');
  if (!tables.some(({ node }) => node.relname in distributed || node.relname in views))
    return { text: statement, arrays: [], records: [], sequences: [] };

  const next = 1 + Math.max(0, ...of('ParamRef').map(({ node }) => node.number));
  const sets = of('RangeFunction').flatMap(({ node }) => setOfRows(sql, node, next) ?? []);
  const sequences = new Set<string>();
  const afterSets = next + (sets.some(({ member }) => member) ? 1 : 0);
  const edits: Edit[] = sets.map(({ edit }) => edit);
  for (const { node } of of('FuncCall')) {
    if (nameOf(node) !== 'pg_sequence_last_value') continue;
    const sequence = node.args[0].A_Const.sval.sval;
    sequences.add(sequence);
    const parameter = `$${afterSets + [...sequences].indexOf(sequence)}`;
    edits.push({ ...callAt(sql, node), text: `${parameter}::bigint` });
  }
  for (const { node } of of('InsertStmt')) {
    const key = KEYS[node.relation.relname];
    const { infer } = node.onConflictClause ?? {};
    const columns = infer?.indexElems?.map(({ IndexElem }: Node) => IndexElem.name).join(', ');
    const start = infer?.location + 1;
    if (key !== undefined && columns === key) edits.push({ start, end: start, text: 'workspace_id, ' });
  }
  // Every set has the same workspace, so each table at any depth gets the condition on it.
  const scalar = scalarIn(of('A_Expr')) ?? sets[0]?.scalar;
  if (scalar) {
    for (const one of of('A_Expr')) edits.push(...comparison(sql, one, scalar));
    for (const one of of('RowExpr')) edits.push(...tuple(one, scalar));
    for (const { node } of tables) if (node.relname in VIEWED) edits.push(view(sql, node, scalar));
  }
  const text = edited(sql, edits, 'text');
  const declared = insertsFirst(visited) ? edited(sql, edits, 'declared') : text;
  return {
    text,
    ...(declared !== text && { declared }),
    arrays: unique(sets.flatMap(({ index, member }) => (member === undefined ? [index] : []))),
    records: sets.flatMap(({ index, member }) => (member === undefined ? [] : [{ index, member }])),
    sequences: [...sequences],
  };
}

function* visit(node: Node, parent: Visited | undefined): Generator<Visited> {
  for (const [kind, member] of Object.entries<Node>(node)) {
    if (member === null || typeof member !== 'object') continue;
    const visited = Array.isArray(node) ? parent : { kind, node: member, parent };
    if (visited !== parent) yield visited!;
    yield* visit(member, visited);
  }
}

/**
 * Converts a set with workspaces. Examples of sets and their forms:
 *
 *     unnest($1::uuid[], $2::text[]) as given (workspace_id, email)
 *     (select $1::uuid as workspace_id, given.* from unnest($2::text[]) as given (email)) as given
 *
 *     jsonb_to_recordset($1::jsonb) as given ("workspaceId" uuid, email text)
 *     (select $2::uuid as "workspaceId", given.* from jsonb_to_recordset($1::jsonb) as given (email text)) as given
 */
function setOfRows(
  sql: string,
  { functions, ordinality, alias, coldeflist }: Node,
  next: number,
): SetOfRows | undefined {
  const call = functions[0].List.items[0].FuncCall;
  const columns: string[] =
    coldeflist?.map(({ ColumnDef }: Node) => ColumnDef.colname) ??
    alias?.colnames?.map(({ String: name }: Node) => name.sval) ??
    [];
  const position = columns.findIndex((name) => WORKSPACE.includes(name));
  if (position < 0) return undefined;
  const name = nameOf(call);
  const index = call.args[0].TypeCast?.arg.ParamRef?.number - 1;
  const isArrays = name === 'unnest' && position === 0;
  if (Number.isNaN(index) || !(isArrays || (name.endsWith('_to_recordset') && coldeflist)))
    throw new Error(
      `the set ${alias.aliasname} is not made from parameters with the workspace first: ${sql}`,
    );
  const { start, end } = callAt(sql, call);
  const list = { start: sql.indexOf('(', end), end: closeOf(sql, sql.indexOf('(', end)) + 1 };
  const definitions = partsOf(sql.slice(list.start, list.end), columns.length);
  const column = coldeflist
    ? definitions[position]!.slice(0, definitions[position]!.lastIndexOf(' '))
    : columns[0]!;
  const others = definitions.filter((_, at) => at !== position).join(', ');
  const given = sql.slice(sql.indexOf('(', start), end);
  const scalar = `$${isArrays ? index + 1 : next}::uuid`;
  const from = isArrays
    ? `unnest(${partsOf(given, columns.length - (ordinality ? 1 : 0))
        .slice(1)
        .join(', ')})`
    : `${name}${given}`;
  const rows = `${from}${ordinality ? ' with ordinality' : ''} as ${alias.aliasname} (${others})`;
  const inParentheses = (query: string) => `(select ${query}) as ${alias.aliasname}`;
  const edit =
    others === ''
      ? { text: inParentheses(`${scalar} as ${column}`) }
      : {
          text: inParentheses(`${scalar} as ${column}, ${alias.aliasname}.* from ${rows}`),
          declared: inParentheses(
            `place.workspace_id as ${column}, ${alias.aliasname}.* from workspace_places as place cross join ${rows} where place.workspace_id = ${scalar}`,
          ),
        };
  return {
    edit: { start, end: list.end, ...edit },
    ...{ scalar, index, ...(!isArrays && { member: columns[position]! }) },
  };
}

/** Returns the first scalar parameter with which the statement compares a workspace. */
function scalarIn(expressions: Visited[]): string | undefined {
  const compared = expressions
    .filter(({ node }) => node.kind === 'AEXPR_OP' && node.name[0].String.sval === '=')
    .filter(({ node }) => fieldsOf(node.lexpr).at(-1) === 'workspace_id')
    .flatMap(({ node: { location, rexpr } }) => {
      const { arg, typeName } = rexpr.TypeCast ?? {};
      const isScalar = arg?.ParamRef && typeName.names.at(-1).String.sval === 'uuid' && !typeName.arrayBounds;
      return isScalar ? [{ location, scalar: `$${arg.ParamRef.number}::uuid` }] : [];
    });
  return compared.sort((one, other) => one.location - other.location)[0]?.scalar;
}

/** Converts a comparison of the workspaces of two rows to comparisons of each with the scalar. */
function comparison(sql: string, { node, parent }: Visited, scalar: string): Edit[] {
  const { kind, name, lexpr, rexpr } = node;
  const isEqual = (kind === 'AEXPR_OP' && name[0].String.sval === '=') || kind === 'AEXPR_NOT_DISTINCT';
  const [first, second, ...rest] = kind === 'AEXPR_IN' ? (rexpr.List?.items ?? []) : [];
  // `isOf` compares with the workspace of another row, or none.
  const isOf = kind === 'AEXPR_IN' && rest.length === 0 && second?.A_Const?.sval?.sval === NIL_UUID;
  if (!isEqual && !isOf) return [];
  const bytes = [lexpr, rexpr].map(argumentOfBytes);
  const [one, other] = (isOf ? [lexpr, first] : bytes.every(Boolean) ? bytes : [lexpr, rexpr]).map(
    workspaceColumn,
  );
  if (one === undefined || other === undefined) return [];
  const scalars = `${one} = ${scalar} and ${other} = ${scalar}`;
  const [start, end, text] = bytes.every(Boolean)
    ? [
        lexpr.FuncCall.location,
        callAt(sql, rexpr.FuncCall).end,
        `${scalars} and uuid_send(${one}) = uuid_send(${scalar})`,
      ]
    : [
        lexpr.ColumnRef.location,
        isOf ? sql.indexOf(')', node.location) + 1 : rexpr.ColumnRef.location + other.length,
        scalars,
      ];
  const isCondition =
    parent?.kind === 'whereClause' ||
    parent?.kind === 'quals' ||
    parent?.parent?.node.boolop?.startsWith('AND');
  return [{ start, end, text: isCondition ? text : `(${text})` }];
}

/** Returns the argument of `uuid_send`, which indexes on the bytes of workspaces have. */
const argumentOfBytes = (node: Node) =>
  node.FuncCall && nameOf(node.FuncCall) === 'uuid_send' ? node.FuncCall.args[0] : undefined;

function workspaceColumn(node: Node): string | undefined {
  const fields = fieldsOf(node);
  return fields.length === 2 && fields[1] === 'workspace_id' ? fields.join('.') : undefined;
}

/** Adds the comparison with the scalar to a tuple with a workspace that is looked up in another table. */
function tuple({ node, parent }: Visited, scalar: string): Edit[] {
  const column = workspaceColumn(node.args[0]);
  const search = parent?.parent;
  const isLookedUp =
    parent?.kind === 'testexpr' || (parent?.kind === 'lexpr' && search?.node.kind === 'AEXPR_IN');
  if (!isLookedUp || !column) return [];
  const negation = search?.parent?.parent?.node;
  if (negation?.boolop === 'NOT_EXPR' && negation.location < node.location)
    throw new Error(`the tuple of ${column} has "not" before it. Write "not in".`);
  return [{ start: node.location, end: node.location, text: `${column} = ${scalar} and ` }];
}

/** Replaces a view by its query for one workspace, with the condition on the workspace in each table. */
function view(sql: string, { relname, alias, location }: Node, scalar: string): Edit {
  const end = location + relname.length;
  const name = alias?.aliasname ?? relname;
  return {
    start: location,
    end: alias ? sql.indexOf(name, end) + name.length : end,
    text: `${queryOfView(VIEWED[relname]!, scalar)} as ${name}`,
  };
}

/** Returns the query of the view for one workspace, with the condition on the workspace in each table. */
function queryOfView(table: string, scalar: string): string {
  return `(
    select ${table}.* from ${table}
    where ${table}.workspace_id = ${scalar} and not exists (
      with recursive owners as (
        select substr(named.name, 3)::uuid as id
        from unnest(${table}.identifiers) as named (name)
        where named.name like 'u:%'
        union
        select hit.owner_id
        from unnest(${table}.identifiers) as named (name)
        cross join lateral (
          select left_names.owner_id, left_names.after, left_names.up_to
          from left_names
          where left_names.workspace_id = ${scalar} and left_names.name = named.name
          offset 0
        ) as hit
        where ${table}.place > hit.after and ${table}.place <= hit.up_to
        union
        select hit.kept_id
        from owners
        cross join lateral (
          select merged_profiles.kept_id
          from merged_profiles
          where merged_profiles.workspace_id = ${scalar} and merged_profiles.profile_id = owners.id
          limit 1
        ) as hit
      )
      select
      from owners
      where (
        select removed_profiles.fate
        from removed_profiles
        where removed_profiles.workspace_id = ${scalar} and removed_profiles.profile_id = owners.id
        limit 1) = 'deleted'))`;
}

/** Checks whether the statement first inserts rows, which it reads from a set without a lateral query. */
function insertsFirst(visited: Visited[]): boolean {
  const statement = visited.find(({ kind }) => kind === 'stmt')!.node;
  const [first] = statement.SelectStmt?.withClause?.ctes ?? [];
  const insert = statement.InsertStmt ?? first?.CommonTableExpr.ctequery.InsertStmt;
  const isLateral = visited.some(({ kind, node }) => kind === 'RangeSubselect' && node.lateral);
  // If the query reads a table of the workspace's shard, the rows go there in one statement. Otherwise they would go
  // through the coordinator, and the transaction would need two phases to commit.
  return insert !== undefined && !insert.withClause && !isLateral;
}

/** Returns the text with its edits, and checks that it is SQL. */
function edited(sql: string, edits: Edit[], form: 'text' | 'declared'): string {
  let result = sql;
  let next = sql.length;
  for (const edit of edits.sort((one, other) => other.start - one.start)) {
    if (edit.end > next) throw new Error(`two changes overlap at ${edit.start}: ${sql}`);
    result = result.slice(0, edit.start) + (edit[form] ?? edit.text) + result.slice(edit.end);
    next = edit.start;
  }
  const text = Buffer.from(result, 'latin1').toString();
  parseSync(text);
  return text;
}

const nameOf = ({ funcname }: Node): string => funcname.at(-1).String.sval;

const fieldsOf = (node: Node): string[] =>
  node.ColumnRef?.fields.map(({ String: name }: Node) => name?.sval) ?? [];

/** Returns the position of a function call. */
function callAt(sql: string, { location }: Node): { start: number; end: number } {
  return { start: location, end: closeOf(sql, sql.indexOf('(', location)) + 1 };
}

/** Returns the position of the parenthesis that closes another one. */
function closeOf(sql: string, open: number): number {
  for (let at = open, depth = 0; ; at++) {
    if (sql[at] === "'" || sql[at] === '"') at = sql.indexOf(sql[at]!, at + 1);
    else if (sql[at] === '(') depth++;
    else if (sql[at] === ')') depth--;
    if (depth === 0) return at;
  }
}

/** Splits a list of columns or parameters, which is in parentheses. @throws {Error} if it has commas within a part */
function partsOf(list: string, count: number): string[] {
  const parts = list
    .slice(1, -1)
    .split(',')
    .map((one) => one.trim());
  if (parts.length !== count)
    throw new Error(`the list has ${parts.length} parts instead of ${count}: ${list}`);
  return parts;
}

const unique = (numbers: number[]) => [...new Set(numbers)];
