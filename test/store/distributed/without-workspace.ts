import { parse } from 'libpg-query';
import { isScalarNode, type Node, withoutPlaces } from './scalars.ts';

/** Expressions with the same value: a column of a row, or a scalar parameter. Equal values are united. */
type Value = string;

/** Columns of a name in a statement. */
type Columns = (column: string) => Value | undefined;

/** Output of a query, in order. A star is open: it has the columns of the rows that it includes. */
interface Output {
  named: { name: string; value: Value }[];
  open: Columns[];
}

interface Scope {
  names: Map<string, Columns>;
  queries: Map<string, Output>;
  outer: Scope | undefined;
}

/**
 * Checks a statement for a distributed store: the workspace of each of its distributed tables must equal one
 * scalar of the
 * statement, by equalities that hold for every row.
 * @param distributed column by which each table or view is distributed
 * @returns names of tables without such an equality, or with another scalar
 * @throws {Error} from the parser if the text is not SQL
 */
export async function withoutWorkspace(sql: string, distributed: Record<string, string>): Promise<string[]> {
  const { stmts } = (await parse(sql)) as Node;
  const analysis = new Judge(distributed);
  for (const { stmt } of stmts) analysis.statement(stmt, undefined);
  return analysis.faults();
}

class Judge {
  private readonly parents = new Map<Value, Value>();
  /** Values that equal one of two values, like the columns of a union. */
  private readonly eithers: [value: Value, one: Value, other: Value][] = [];
  private readonly wanted: { table: string; value: Value }[] = [];
  private made = 0;
  private readonly distributed: Record<string, string>;

  constructor(distributed: Record<string, string>) {
    this.distributed = distributed;
  }

  faults(): string[] {
    for (let before = -1; before !== this.parents.size; ) {
      before = this.parents.size;
      for (const [value, one, other] of this.eithers)
        if (this.root(one) === this.root(other)) this.unite(value, one);
    }
    const scalars = new Set([...this.parents.keys()].filter(isScalar).map((scalar) => this.root(scalar)));
    const [first] = this.wanted.map(({ value }) => this.root(value)).filter((root) => scalars.has(root));
    const matches = this.wanted.filter(({ value }) => this.root(value) !== first || first === undefined);
    return [...new Set(matches.map(({ table }) => table))].sort();
  }

  private root(value: Value): Value {
    let root = value;
    for (let next = this.parents.get(root); next && next !== root; next = this.parents.get(root)) root = next;
    return root;
  }

  private unite(one: Value | undefined, other: Value | undefined): void {
    if (!one || !other) return;
    for (const value of [one, other]) if (!this.parents.has(value)) this.parents.set(value, value);
    this.parents.set(this.root(one), this.root(other));
  }

  private fresh(): Value {
    this.made++;
    return `value ${this.made}`;
  }

  private table({ relname }: Node): Columns {
    const row = this.fresh();
    const column = this.distributed[relname];
    if (column) this.wanted.push({ table: relname, value: `${row}.${column}` });
    return (name) => `${row}.${name}`;
  }

  statement(node: Node, outer: Scope | undefined): Output {
    const [[kind, statement]] = Object.entries<Node>(node) as [[string, Node]];
    const scope: Scope = { names: new Map(), queries: new Map(), outer };
    this.withQueries(statement.withClause, scope);
    if (kind === 'SelectStmt') return this.select(statement, scope);
    const target = this.table(statement.relation);
    scope.names.set(statement.relation.alias?.aliasname ?? statement.relation.relname, target);
    if (kind === 'InsertStmt') this.insert(statement, target, scope);
    for (const from of [...(statement.fromClause ?? []), ...(statement.usingClause ?? [])])
      this.from(from, scope);
    this.condition(statement.whereClause, scope);
    this.expressions(statement.targetList, scope);
    this.expressions(statement.onConflictClause, scope);
    return this.output(statement.returningList, scope);
  }

  private withQueries(clause: Node, scope: Scope): void {
    for (const { CommonTableExpr: query } of clause?.ctes ?? []) {
      const select = query.ctequery.SelectStmt;
      const named = (output: Output) => renamed(output, query.aliascolnames);
      if (clause.recursive && select?.op && select.op !== 'SETOP_NONE') {
        // The first part determines the rows; the recursive part is checked only where it reads tables
        // itself.
        const inner: Scope = { names: new Map(), queries: new Map(), outer: scope };
        this.withQueries(select.withClause, inner);
        const first = this.statement({ SelectStmt: select.larg }, inner);
        scope.queries.set(query.ctename, named(first));
        this.statement({ SelectStmt: select.rarg }, inner);
      } else scope.queries.set(query.ctename, named(this.statement(query.ctequery, scope)));
    }
  }

  private select(statement: Node, scope: Scope): Output {
    if (statement.op && statement.op !== 'SETOP_NONE') {
      const [one, other] = [statement.larg, statement.rarg].map((arm) =>
        this.statement({ SelectStmt: arm }, scope),
      ) as [Output, Output];
      return this.either(one, other);
    }
    if (statement.valuesLists) {
      const lists = statement.valuesLists.map(({ List }: Node) =>
        List.items.map((item: Node) => this.value(item, scope)),
      ) as Value[][];
      const [first] = lists;
      const same = (position: number) => lists.every((list) => list[position] === first![position]);
      return {
        named: first!.map((value, index) => ({
          name: `column${index + 1}`,
          value: same(index) ? value : this.fresh(),
        })),
        open: [],
      };
    }
    for (const from of statement.fromClause ?? []) this.from(from, scope);
    this.condition(statement.whereClause, scope);
    for (const part of ['groupClause', 'havingClause', 'sortClause', 'limitCount', 'distinctClause'])
      this.expressions(statement[part], scope);
    return this.output(statement.targetList, scope);
  }

  private either(one: Output, other: Output): Output {
    const named = one.named.map(({ name, value }, at) => {
      const either = this.fresh();
      this.eithers.push([either, value, other.named[at]?.value ?? this.fresh()]);
      return { name, value: either };
    });
    const open = one.open.map((columns, offset): Columns => {
      return (name) => {
        const [left, right] = [columns(name), other.open[offset]?.(name)];
        if (!left || !right) return undefined;
        const either = this.fresh();
        this.eithers.push([either, left, right]);
        return either;
      };
    });
    return { named, open };
  }

  private output(targets: Node[] | undefined, scope: Scope): Output {
    const output: Output = { named: [], open: [] };
    for (const { ResTarget: target } of targets ?? []) {
      const fields = target.val?.ColumnRef?.fields;
      if (fields?.at(-1)?.A_Star) {
        const [of] = fields.length > 1 ? [fields[0].String.sval as string] : [];
        const rows = of ? [this.named(of, scope)] : [...scope.names.values()];
        output.open.push((name) => rows.map((row) => row?.(name)).find(Boolean));
        continue;
      }
      const name = target.name ?? fields?.at(-1)?.String?.sval ?? '';
      output.named.push({ name, value: this.value(target.val, scope) });
    }
    return output;
  }

  private insert({ cols, selectStmt }: Node, target: Columns, scope: Scope): void {
    const { named } = selectStmt ? this.statement(selectStmt, scope) : { named: [] };
    (cols ?? []).forEach(({ ResTarget: { name } }: Node, position: number) => {
      this.unite(target(name), named[position]?.value);
    });
    scope.names.set('excluded', target);
  }

  private from(node: Node, scope: Scope): void {
    const [[kind, from]] = Object.entries<Node>(node) as [[string, Node]];
    const alias: string | undefined = from.alias?.aliasname;
    if (kind === 'JoinExpr') {
      this.from(from.larg, scope);
      const before = [...scope.names.values()];
      this.from(from.rarg, scope);
      const after = [...scope.names.values()].slice(before.length);
      for (const { String: name } of from.usingClause ?? [])
        for (const one of before) for (const other of after) this.unite(one(name.sval), other(name.sval));
      this.condition(from.quals, scope);
    } else if (kind === 'RangeVar') {
      const query = this.query(from.relname, scope);
      const columns = query ? columnsOf(renamed(query, from.alias?.colnames)) : this.table(from);
      scope.names.set(alias ?? from.relname, columns);
    } else if (kind === 'RangeSubselect') {
      const output = renamed(this.statement(from.subquery, scope), from.alias?.colnames);
      scope.names.set(alias ?? this.fresh(), columnsOf(output));
    } else {
      this.expressions(from.functions, scope);
      const row = this.fresh();
      scope.names.set(alias ?? row, (name) => `${row}.${name}`);
    }
  }

  private query(name: string, scope: Scope | undefined): Output | undefined {
    return scope && (scope.queries.get(name) ?? this.query(name, scope.outer));
  }

  private named(name: string, scope: Scope | undefined): Columns | undefined {
    return scope && (scope.names.get(name) ?? this.named(name, scope.outer));
  }

  /** Collects the equalities that hold for every row. */
  private condition(node: Node, scope: Scope): void {
    if (!node) return;
    if (node.BoolExpr?.boolop === 'AND_EXPR') {
      for (const one of node.BoolExpr.args) this.condition(one, scope);
      return;
    }
    const { kind, name, lexpr, rexpr } = node.A_Expr ?? {};
    if (kind === 'AEXPR_OP' && name[0].String.sval === '=') {
      this.equal(lexpr, rexpr, scope);
      return;
    }
    if (node.SubLink?.subLinkType === 'ANY_SUBLINK' && !node.SubLink.operName) {
      const { named } = this.statement(node.SubLink.subselect, scope);
      valuesIn(node.SubLink.testexpr).forEach((one, position) => {
        this.unite(this.value(one, scope), named[position]?.value);
      });
      return;
    }
    this.expressions(node, scope);
  }

  private equal(one: Node, other: Node, scope: Scope): void {
    const [left, right] = [valuesIn(one), valuesIn(other)];
    if (left.length === right.length)
      left.forEach((value, position) => {
        this.unite(this.value(value, scope), this.value(right[position], scope));
      });
    else this.expressions([one, other], scope);
  }

  private value(node: Node, scope: Scope): Value {
    const fields = node?.ColumnRef?.fields;
    if (fields) {
      const names = fields.map(({ String: name }: Node) => name?.sval) as string[];
      if (names.length > 1) return this.named(names[0]!, scope)?.(names[1]!) ?? this.fresh();
      // An unqualified column of the only table.
      return [...scope.names.values()].map((row) => row(names[0]!)).find(Boolean) ?? this.fresh();
    }
    if (node?.TypeCast?.arg?.ColumnRef) return this.value(node.TypeCast.arg, scope);
    if (node && isScalarNode(node)) {
      const scalar = `scalar ${JSON.stringify(withoutPlaces(node))}`;
      this.unite(scalar, scalar);
      return scalar;
    }
    const single = node?.SubLink?.subLinkType === 'EXPR_SUBLINK';
    if (single) return this.statement(node.SubLink.subselect, scope).named[0]?.value ?? this.fresh();
    this.expressions(node, scope);
    return this.fresh();
  }

  /** Visits queries within an expression. Comparisons there do not hold for every row. */
  private expressions(node: Node, scope: Scope): void {
    if (node === null || typeof node !== 'object') return;
    if (node.SubLink) {
      this.statement(node.SubLink.subselect, scope);
      this.expressions(node.SubLink.testexpr, scope);
      return;
    }
    for (const part of Object.values(node)) this.expressions(part, scope);
  }
}

function columnsOf({ named, open }: Output): Columns {
  return (column) =>
    named.find(({ name }) => name === column)?.value ?? open.map((columns) => columns(column)).find(Boolean);
}

function renamed(output: Output, names: Node[] | undefined): Output {
  if (!names) return output;
  return {
    ...output,
    named: output.named.map((one, position) => ({ ...one, name: names[position]?.String.sval ?? one.name })),
  };
}

function valuesIn(node: Node): Node[] {
  return node?.RowExpr?.args ?? [node];
}

const isScalar = (value: Value) => value.startsWith('scalar ');
