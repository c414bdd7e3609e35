/** What holds semicolons that end nothing: comments, texts, names, bodies of functions. */
const TOKEN = /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$[\s\S]*?\$\1\$|;/g;

/** The statements of a script. A Citus tells its nodes the whole text of what it is sent, and they take one at a time. */
export function splitScript(script: string): string[] {
  const statements: string[] = [];
  let start = 0;
  for (const { 0: token, index } of script.matchAll(TOKEN)) {
    if (token !== ';') continue;
    statements.push(script.slice(start, index));
    start = index + 1;
  }
  statements.push(script.slice(start));
  return statements.filter((one) => one.replace(/--[^\n]*|\/\*[\s\S]*?\*\//g, '').trim() !== '');
}
