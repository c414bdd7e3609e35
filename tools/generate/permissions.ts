import { allOperations } from '../../src/operations/index.ts';
import { settings } from '../../src/platform/config.ts';
import { type Right, rightMeanings, rights } from '../../src/resources/rights.ts';
import { SENDS } from '../../src/resources/streams.ts';
import { permissionGroups, permissionPresets, permissions } from '../../src/schemas/permissions.ts';
import { rulesOf } from '../../src/schemas/vendor-rules.ts';

/** Rights that open a page or an action only together with other rights: see `combined`. */
const supplements: readonly Right[] = ['export', 'change'];

/** Actions that need several rights at once. */
const combined: { meaning: string; needs: readonly Right[] }[] = [
  { meaning: 'Set subscriptions of users, and delete users', needs: ['change', 'users'] },
  { meaning: 'Set and remove attributes of users', needs: ['change', 'users', 'pii'] },
  { meaning: 'Download the data of a user', needs: ['export', 'users', 'pii'] },
  { meaning: 'Replay and discard dead letters', needs: ['change', 'delivery'] },
  { meaning: 'Correct dead letters', needs: ['change', 'delivery', 'pii'] },
  { meaning: 'Erase deleted users from the log of streams', needs: ['change', 'syncs'] },
  {
    meaning: 'Create, test, replay and remove streams, which send personal data',
    needs: SENDS,
  },
];

const code = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(', ');

/** Returns the text of docs/permissions.md: the endpoints and pages that each permission opens. */
export function permissionsPage(): string {
  // List the operations of `VENDOR_RULES=current`, which include all operations of `spec`.
  const operations = allOperations(settings.SERVICE_ID_FIELD.default, { rules: rulesOf.current });
  const lines = Object.assign({}, ...permissionGroups.map((group) => group.permissions));
  const keys = permissions.map((permission) => {
    const opened = operations.filter((operation) => operation.permission === permission);
    const paths = opened.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`);
    const allows = paths.length === 0 ? 'none' : code(paths);
    return `| \`${permission}\` | ${lines[permission]} | ${allows} |`;
  });
  const presets = Object.entries(permissionPresets).map(
    ([preset, { line, permissions: given }]) => `| \`${preset}\` | ${line} | ${code(given)} |`,
  );
  const free = operations.filter(({ permission, auth }) => permission === undefined && auth === undefined);
  const console = (Object.keys(rightMeanings) as Right[])
    .filter((right) => !supplements.includes(right))
    .map((right) => `| ${rightMeanings[right]} | ${code(rights[right])} |`);
  const rows = combined.map(
    ({ meaning, needs }) =>
      `| ${meaning} | ${needs.map((right) => rights[right].map((name) => `\`${name}\``).join(' or ')).join(', and ')} |`,
  );
  return `# Permissions

<!-- Generated from src/schemas/permissions.ts, src/operations and src/resources/rights.ts by \`npm run generate\`. -->

## API keys

A key belongs to one workspace and has a list of permissions. A request that needs a missing permission is answered with 403 and the code
\`permission_missing\`. \`users.track.sync\` opens an endpoint only with [\`VENDOR_RULES=current\`](vendor-rules.md). Create a key with \`penstock keys create\`, or in the console.

| Permission | Allows | Endpoints |
| --- | --- | --- |
${keys.join('\n')}

Every key of the workspace may call ${code(free.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`))}. \`--permissions all\` gives
every permission of this table.

### Presets

\`penstock keys create --preset NAME\` and the form of the console give the permissions of a common client. \`--permissions\` adds further ones. The
key stores the permissions, so that a preset that a later release changes does not change existing keys.

| Preset | For | Permissions |
| --- | --- | --- |
${presets.join('\n')}

## SCIM tokens

A SCIM token opens every endpoint below \`/scim/v2\` for one company, and no other endpoint. See [SCIM](scim.md).

## Console accounts

Each page of the console needs one of the listed permissions in the workspace. Where the table has *and*, the account needs a permission of each part. They have the names that SCIM uses. In a workspace, \`admin\` includes all of
them. The company permissions \`admin\` and \`manage_company_settings\` include all of them in every workspace of the company.
[Who sees what](console.md#who-sees-what) lists the pages.

| The account can | With one of |
| --- | --- |
${console.join('\n')}
${rows.join('\n')}

SCIM accepts further permissions of the vendor's protocol. They open no page of the console.
`;
}
