import { expect, test } from 'vitest';
import { createDatabase } from '../setup/fixtures.ts';
import { penstockOn } from './penstock.ts';
import { spawnPenstock } from './spawn-penstock.ts';

test.each([
  ['exec', 'npx penstock'],
  ['run-script', 'npm run -s penstock --'],
  ['', 'penstock'],
])('started by npm as %j, hints and examples start with: %s', async (npm_command, name) => {
  const { url } = await createDatabase();
  const { run } = penstockOn(url, { npm_command }, spawnPenstock);
  const { code, stderr } = await run('keys list --workspace nobody');
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: `error: no workspace has the name or the id 'nobody'; see ${name} workspaces list\n`,
  });
  expect((await run('keys create --help')).stdout).toContain(`\n  $ ${name} keys create --workspace `);
});
