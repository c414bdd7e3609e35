import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parseAst } from 'rolldown/parseAst';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../src/platform/files.ts';
import { sources } from './setup/sources.ts';

interface WordRule {
  message: string;
  searchPattern: string;
}

/** The word list of the linter for Markdown. The strings of the code have the same rules. */
const rules = wordRules();

/** Words with which a line of SQL begins, and the beginning of a common table expression. */
const SQL =
  /^\s*(?:select|where|(?:left )?join|returning|for update|order by|group by|delete from|insert into|on conflict)\b|\bas (?:not )?(?:materialized )?\($/m;

/** Parts of strings that are no prose: code, tags with their attributes, and commands and actions whose names stay. */
const NOT_PROSE = /`[^`]*`|<[^>]*>|\b\w+="[^"]*"|dead-letters mend\b.*|\bmend, mend_fields\b/g;

const files = sources.filter(
  ({ file }) => /^(?:src|workers|tools)\/.*\.ts$/.test(file) && !file.startsWith('src/generated/'),
);

describe('strings of several words', () => {
  test.each(files)('use no word of the word list in $file', ({ text }) => {
    const wrong = stringsOf(text).flatMap((string) => {
      const prose = string.replace(NOT_PROSE, ' ');
      return rules
        .filter(({ pattern }) => pattern.test(prose))
        .map(({ message }) => ({ string: string.trim().slice(0, 120), message }));
    });
    expect(wrong).toEqual([]);
  });

  test('are found in constants, templates and arguments, and SQL is not among them', () => {
    const code = "const one = 'a b'; run(`c d ${one} e f`, 'word', 'select told from told', x as 'g h');";
    expect(stringsOf(code)).toEqual(['a b', 'c d ', ' e f']);
  });
});

/** Returns the strings with at least two words, without module names, types and SQL. */
function stringsOf(text: string): string[] {
  const strings: string[] = [];
  const visit = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return;
    if (Array.isArray(node)) {
      for (const child of node) visit(child);
      return;
    }
    const { type, value } = node as { type?: string; value?: unknown };
    if (type === 'ImportDeclaration' || type === 'TSLiteralType') return;
    if (type === 'Literal' && typeof value === 'string') strings.push(value);
    if (type === 'TemplateElement') strings.push((value as { cooked: string }).cooked);
    for (const child of Object.values(node)) visit(child);
  };
  visit(parseAst(text, { lang: 'ts' }).body);
  return strings.filter((string) => /[a-z][,:;]? [a-z]/i.test(string) && !SQL.test(string));
}

function wordRules(): { message: string; pattern: RegExp }[] {
  const file = readFileSync(path.join(packageRoot, '.config/.markdownlint-cli2.jsonc'), 'utf8');
  const { config } = JSON.parse(file.replace(/^\s*\/\/.*$/gm, ''));
  return config['search-replace'].rules.map(({ message, searchPattern }: WordRule) => {
    const [, pattern, flags] = /^\/(.*)\/g(i?)$/.exec(searchPattern)!;
    return { message, pattern: new RegExp(pattern!, flags) };
  });
}
