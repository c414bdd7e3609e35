/** What accounts can be found by. */
export type FilterColumn =
  | 'id'
  | 'externalId'
  | 'userName'
  | 'name'
  | 'givenName'
  | 'familyName'
  | 'department'
  | 'active';

/** A filter that has been understood. */
export type Condition =
  | { op: 'and' | 'or'; conditions: Condition[] }
  | { op: 'eq' | 'co' | 'sw'; column: FilterColumn; value: string }
  | { op: 'eq'; column: 'active'; value: boolean };

/**
 * Each column as it is compared. Case counts only in ids; the others have an index on what stands here, but the
 * whole name, which is looked for among the accounts of the company.
 */
const expressions: Record<FilterColumn, string> = {
  id: 'accounts.id::text',
  externalId: 'accounts.external_id',
  userName: 'accounts.email',
  name: "lower(accounts.given_name || ' ' || accounts.family_name)",
  givenName: 'lower(accounts.given_name)',
  familyName: 'lower(accounts.family_name)',
  department: 'accounts.department',
  active: 'accounts.active',
};

const CASE_EXACT: FilterColumn[] = ['id', 'externalId'];

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** As SQL. What the client wrote goes into `values` only, never into the text. */
export function conditionSql(condition: Condition, values: unknown[]): string {
  if ('conditions' in condition) {
    const parts = condition.conditions.map((one) => conditionSql(one, values));
    return `(${parts.join(` ${condition.op} `)})`;
  }
  const { op, column, value } = condition;
  const expression = expressions[column];
  if (typeof value === 'boolean') return `${expression} = $${values.push(value)}::boolean`;
  // By the primary key; what is no UUID is nobody's.
  if (column === 'id' && op === 'eq')
    return UUID.test(value) ? `accounts.id = $${values.push(value)}::uuid` : 'false';
  const folded = CASE_EXACT.includes(column) ? value : value.toLowerCase();
  if (op === 'eq') return `${expression} = $${values.push(folded)}::text`;
  if (op === 'co') return `position($${values.push(folded)}::text in ${expression}) > 0`;
  const pattern = `${folded.replace(/[\\%_]/g, '\\$&')}%`;
  return `${expression} like $${values.push(pattern)}::text`;
}

/** Whether a condition compares what no index helps with, so that every account of the company is read. */
export function readsEveryone(condition: Condition): boolean {
  if ('conditions' in condition) return condition.conditions.some(readsEveryone);
  const { op, column } = condition;
  return op === 'co' || column === 'name' || (op === 'sw' && column === 'id');
}
