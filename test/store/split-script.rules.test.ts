import { expect, test } from 'vitest';
import { splitScript } from '../../src/store/migrations.ts';

test('a script is split only where a statement ends', () => {
  const body = "create function f() returns text language sql as $$ select 'a;b'; $$";
  expect(
    splitScript(`-- first; nothing\ncreate table a (b text default ';');\n${body};\n/* c; */\n-- the end;\n`),
  ).toEqual([`-- first; nothing\ncreate table a (b text default ';')`, `\n${body}`]);
});
