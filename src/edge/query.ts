/** The end of a name that stands for a list: `external_id[]`, `external_id[7]`. */
const LIST = /\[\d*\]$/;

/**
 * A query string as an object. What is named twice, or as a list, becomes an array in the order of the text; there is
 * nothing deeper. Express's own parser makes an object of a list of more than 20.
 *
 * @param text without the question mark; null: there is none
 */
export function parseQuery(text: string | null): Record<string, string | string[]> {
  const lists = new Map<string, string[]>();
  const named = new Set<string>();
  for (const [sent, value] of new URLSearchParams(text ?? '')) {
    const name = sent.replace(LIST, '');
    if (name !== sent) named.add(name);
    const list = lists.get(name);
    if (list) list.push(value);
    else lists.set(name, [value]);
  }
  return Object.fromEntries(
    [...lists].map(([name, list]) => [name, list.length > 1 || named.has(name) ? list : list[0]!]),
  );
}
