/** A node of the parser's tree. Only the members used here matter. */
// biome-ignore lint/suspicious/noExplicitAny: every member is looked for
export type Node = any;

const SCALAR = new Set(['ParamRef', 'TypeCast', 'A_Const', 'A_Indirection', 'A_Indices', 'A_Expr']);

/** Checks whether an expression consists only of parameters and constants of the statement. */
export function isScalarNode(node: Node): boolean {
  const kinds = Object.entries<Node>(node);
  return kinds.every(([kind, part]) => {
    if (!SCALAR.has(kind)) return false;
    if (kind === 'ParamRef' || kind === 'A_Const') return true;
    if (kind === 'A_Expr' && part.kind !== 'AEXPR_OP') return false;
    const inner = [part.arg, part.lexpr, part.rexpr, ...(part.indirection ?? []), part.lidx, part.uidx];
    return inner.filter(Boolean).every(isScalarNode);
  });
}

/** Returns the expression without its positions in the text. */
export function withoutPlaces(node: Node): Node {
  if (Array.isArray(node)) return node.map(withoutPlaces);
  if (node === null || typeof node !== 'object') return node;
  const kept = Object.entries(node).filter(([key]) => key !== 'location' && key !== 'typemod');
  return Object.fromEntries(kept.map(([key, value]) => [key, withoutPlaces(value)]));
}
