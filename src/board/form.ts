/** Fields of a form that was sent; one that is missing, or came twice, is empty. */
export function readNamed<Name extends string>(form: unknown, ...names: Name[]): Record<Name, string> {
  const given = (form ?? {}) as Record<string, unknown>;
  const values = names.map((name) => [name, typeof given[name] === 'string' ? given[name] : '']);
  return Object.fromEntries(values);
}
