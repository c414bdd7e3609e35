import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'libpg-query';
import { packageRoot } from '../../src/platform/files.ts';

/** The previous release, as test/upgrade/previous.json names it; docs/upgrade.md says when it changes. */
export interface Previous {
  version: string;
  /** Commit of the release. */
  commit: string;
  /** The latest version of envelopes that its workers read (`READS` of src/queue/wire.ts). */
  reads: number;
  /** The newest of its migrations. */
  migration: string;
  /** Migrations after this one are checked against the previous release. */
  checkedAfter: string;
}

export const previous = JSON.parse(
  readFileSync(path.join(packageRoot, 'test/upgrade/previous.json'), 'utf8'),
) as Previous;

/**
 * Expand and contract: a migration is applied while processes of the previous release run, and stays after a
 * rollback. It may
 * only add parts that those processes need not know. A removal is a separate step in a later release, marked
 * by a comment
 * before its statement:
 *     -- contract 1.2.0: the column nick, unused since 1.1.0
 * 1.2.0 is the release whose migration may remove the column, 1.1.0 the release that stopped using it.
 */
const CONTRACT = /^\s*-- contract (\d+\.\d+\.\d+): .+, unused since (\d+\.\d+\.\d+)$/m;

/**
 * All migrations are one transaction, so an index cannot be built concurrently: an operator builds it before.
 */
const BEFOREHAND = /^\s*-- beforehand: create (unique )?index concurrently /m;

/** Tables of which an installation may have millions of rows. */
const LARGE = new Set([
  ...[
    'profiles',
    'events',
    'purchases',
    'event_summaries',
    'purchase_summaries',
    'user_aliases',
    'push_tokens',
  ],
  ...['subscription_states', 'subscription_history', 'email_addresses', 'ledger', 'outcomes', 'dead_letters'],
  ...['idempotency_keys', 'merged_profiles', 'removed_profiles', 'sync_row_errors', 'token_buckets'],
]);

/** Statements that only add, without a change of existing parts. */
const ADDING = new Set([
  ...[
    'CreateStmt',
    'IndexStmt',
    'AlterTableStmt',
    'ViewStmt',
    'CreateFunctionStmt',
    'CreateTrigStmt',
    'InsertStmt',
  ],
  ...[
    'CreateSchemaStmt',
    'CreateSeqStmt',
    'CreateEnumStmt',
    'AlterEnumStmt',
    'CreateStatsStmt',
    'CommentStmt',
  ],
  ...['SelectStmt', 'VariableSetStmt', 'UpdateStmt'],
]);

/** Parts of `alter table` that are compatible with processes that do not know them. */
const HARMLESS = new Set([
  ...[
    'AT_AddColumn',
    'AT_ColumnDefault',
    'AT_DropNotNull',
    'AT_AddConstraint',
    'AT_SetRelOptions',
    'AT_SetOptions',
  ],
  ...['AT_ResetRelOptions', 'AT_SetStatistics', 'AT_SetCompression', 'AT_SetStorage', 'AT_AttachPartition'],
]);

/** A block without effect on a server that lacks a feature; the statements in it are checked instead. */
const WHERE_SUPPORTED =
  /^\s*do \$\$ begin\s(.*)\sexception when feature_not_supported then null;\s+end \$\$\s*$/s;

const words: Record<string, string> = {
  AT_DropColumn: 'drops a column',
  AT_AlterColumnType: 'alters type or collation of a column',
  AT_SetNotNull: 'sets a column not null',
  AT_DropConstraint: 'drops a constraint',
  DropStmt: 'drops',
  RenameStmt: 'renames',
  DoStmt: 'runs a block that cannot be judged',
  DeleteStmt: 'deletes rows',
  TruncateStmt: 'deletes rows',
};

/** A node of the parser's tree. Only the members used here matter. */
// biome-ignore lint/suspicious/noExplicitAny: every member is looked for
type Node = any;

export interface Releases {
  /** Release of the migration. */
  version: string;
  /** Release whose processes run at the same time. */
  previous: string;
}

/**
 * Checks whether the previous release is compatible with a migration.
 * @returns each fault with its statement; empty: the migration may be applied while that release runs
 * @throws {Error} from the parser if the text is not SQL
 */
export async function judgeMigration(sql: string, releases: Releases): Promise<string[]> {
  const bytes = Buffer.from(sql);
  const { stmts = [] } = (await parse(sql)) as { stmts?: Node[] };
  const made = new Set<string>();
  const faults: string[] = [];
  for (const { stmt, stmt_location: from = 0, stmt_len: length } of stmts) {
    const text = bytes.subarray(from, length === undefined ? undefined : from + length).toString();
    const [[kind, node]] = Object.entries<Node>(stmt) as [[string, Node]];
    const [, supportedRelease] = WHERE_SUPPORTED.exec(text.replace(/^\s*--.*$/gm, '')) ?? [];
    if (supportedRelease !== undefined) {
      faults.push(...(await judgeMigration(supportedRelease, releases)));
      continue;
    }
    const result = faultsOf(kind, node, { made, text });
    if (kind === 'CreateStmt') made.add(node.relation.relname);
    const shown = text
      .replace(/^\s*--.*$/gm, '')
      .replace(/\s+/g, ' ')
      .trim();
    const contract = CONTRACT.exec(text);
    if (result.length > 0 && contract) faults.push(...faultsOfContract(contract, releases, shown));
    else faults.push(...result.map((fault) => `${fault}: ${shown}`));
  }
  return faults;
}

function faultsOfContract(
  [, allowed, unused]: RegExpExecArray,
  { version, previous }: Releases,
  shown: string,
) {
  if (isLater(allowed!, version)) return [`is a step of ${allowed}, and this is ${version}: ${shown}`];
  if (isLater(unused!, previous))
    return [`was used before ${unused}, and ${previous} runs beside this one: ${shown}`];
  return [];
}

function isLater(one: string, other: string): boolean {
  return one.localeCompare(other, 'en', { numeric: true }) > 0;
}

interface Place {
  /** Tables that this migration creates, which no process uses yet. */
  made: ReadonlySet<string>;
  text: string;
}

function faultsOf(kind: string, node: Node, { made, text }: Place): string[] {
  if (!ADDING.has(kind)) return [words[kind] ?? `is no statement that only adds (${kind})`];
  const table: string = node.relation?.relname;
  if (kind === 'CreateStmt')
    return (node.tableElts ?? [])
      .flatMap((element: Node) => constraintsOf(element))
      .flatMap(faultsOfReference);
  if (made.has(table)) return [];
  if (kind === 'IndexStmt') return faultsOfIndex(node, text);
  if (kind === 'UpdateStmt')
    return LARGE.has(table) ? ['changes rows of a large table, and holds them until all is done'] : [];
  if (kind !== 'AlterTableStmt') return [];
  return node.cmds.flatMap(({ AlterTableCmd: part }: Node) => faultsOfPart(part, table));
}

function faultsOfIndex(
  { relation, unique, concurrent, if_not_exists: mayBeThere }: Node,
  text: string,
): string[] {
  if (unique) return ['is a new rule about rows that the release before writes'];
  if (concurrent) return ['cannot run in the one transaction of all migrations'];
  const isBeforehand = mayBeThere && BEFOREHAND.test(text);
  return LARGE.has(relation.relname) && !isBeforehand
    ? ['stops all who write to a large table: build it beforehand, and create it "if not exists" here']
    : [];
}

function faultsOfPart({ subtype, def }: Node, table: string): string[] {
  if (!HARMLESS.has(subtype)) return [words[subtype] ?? `is no change that only adds (${subtype})`];
  if (subtype === 'AT_ColumnDefault' && !def) return ['drops a default'];
  if (subtype === 'AT_AddConstraint') return ['is a new rule about rows that the release before writes'];
  if (subtype !== 'AT_AddColumn') return [];
  const constraints = constraintsOf(def);
  const of = (type: string) => constraints.find(({ contype }) => contype === type);
  const isFilled = of('CONSTR_DEFAULT') ?? of('CONSTR_IDENTITY') ?? of('CONSTR_GENERATED');
  const rewrites = isFilled && !isConstant(isFilled.raw_expr);
  return [
    ...(of('CONSTR_NOTNULL') && !isFilled ? ['is a new column that the release before leaves empty'] : []),
    ...(rewrites && LARGE.has(table) ? ['writes a large table anew, which stops everybody'] : []),
    ...(['CONSTR_UNIQUE', 'CONSTR_PRIMARY', 'CONSTR_CHECK', 'CONSTR_FOREIGN', 'CONSTR_EXCLUSION'].some(of)
      ? ['is a new rule about rows that the release before writes']
      : []),
  ];
}

function constraintsOf(element: Node): Node[] {
  if (element?.Constraint) return [element.Constraint];
  const column = element?.ColumnDef;
  return (column?.constraints ?? []).map(({ Constraint }: Node) => Constraint);
}

/** A reference must not prevent the previous release, which does not know its rows, from deleting. */
function faultsOfReference({ contype, fk_del_action: action }: Node): string[] {
  const isFree = contype !== 'CONSTR_FOREIGN' || ['c', 'n', 'd'].includes(action);
  return isFree ? [] : ['keeps the release before from deleting what it refers to'];
}

/** Checks whether Postgres stores the default once instead of in every row. */
function isConstant(expression: Node): boolean {
  if (!expression) return false;
  if (expression.TypeCast) return isConstant(expression.TypeCast.arg);
  if (expression.A_ArrayExpr) return !(expression.A_ArrayExpr.elements?.length > 0);
  const calls = (expression.FuncCall?.funcname ?? []).map(({ String: name }: Node) => name.sval);
  return (
    expression.A_Const !== undefined || expression.SQLValueFunction !== undefined || calls.at(-1) === 'now'
  );
}
