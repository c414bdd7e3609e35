import { vendorRules } from '../../src/schemas/vendor-rules.ts';

/** Returns the text of docs/vendor-rules.md: the rules of each level of VENDOR_RULES, and the vendor page for each rule. */
export function vendorRulesPage(): string {
  const pages = [...new Set(Object.values(vendorRules).map(({ page }) => page))];
  const rows = Object.values(vendorRules).map(
    ({ about, spec, current, page }) =>
      `| ${about} | ${spec.does} | ${current.does} | [${pages.indexOf(page) + 1}](${page}) |`,
  );
  return `# Vendor rules

<!-- Generated from src/schemas/vendor-rules.ts by \`npm run generate\`. -->

The specification that Penstock implements and the vendor's present pages differ in some rules. The setting \`VENDOR_RULES\` chooses between them:

- \`spec\`, the default: the rules of the specification.
- \`current\`: the rules of the vendor's public pages, as they were in September 2026.

Set \`current\` to test a client against the limits and errors that it meets at the vendor today:

\`\`\`sh
VENDOR_RULES=current npx penstock dev
\`\`\`

All processes and the command \`penstock\` need the same value. Set \`current\` after all workers run a release that has this setting:
earlier workers combine users that \`current\` leaves apart. A change takes effect after a restart, and changes no stored data. \`/openapi.json\` and
\`/docs\` of a server describe the rules that it follows. A test sends requests for every row of this table at both levels.

| About | \`spec\` | \`current\` | Page |
| --- | --- | --- | --- |
${rows.join('\n')}

A limit that you set with \`penstock limits set\` applies at both levels, and so does \`SERVICE_ID_FIELD\` if you set it. [Imports](import.md) and
[warehouse syncs](warehouse-sync.md) validate rows by \`spec\`, except that an event can have the size of the level.

## What stays different

\`current\` changes only rules that the vendor's public pages state and that Penstock can follow. All other rows of [the differences](differences.md)
apply at both levels, for example:

- Members that Penstock adds to answers stay: \`warnings\`, \`code\`, \`detail\` and \`pending\`.
- An API key is never repeated in an answer.
- A phone number that has letters after its first digit is omitted. Without the letters, it would be the number of another person.
- The state of an address without a user is kept permanently.
- \`/users/track/sync\` waits for the effect for up to 1.5 s. After that, it answers 202 with \`"pending": true\`. The object is stored and takes effect later.
- A web process that takes rate limit tokens in advance can use a few of them, at most 1/32 of the bucket, up to 0.5 s into the next window.
`;
}
