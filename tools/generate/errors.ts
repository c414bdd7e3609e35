import { type ErrorName, errors, explain } from '../../src/errors.ts';

const cell = (text: string) => text.replaceAll('|', '\\|');

/** Returns the text of docs/errors.md: every code with its status, meaning and remedy. */
export function errorsPage(): string {
  const rows = (Object.keys(errors) as ErrorName[]).flatMap((name) => {
    const entry = errors[name];
    if (!('code' in entry)) return [];
    const { code, status, message, meaning, remedy } = entry;
    return [`| \`${code}\` | ${status} | ${cell(message)} | ${cell(meaning)} | ${cell(remedy)} |`];
  });
  const example = {
    message: errors.permissionMissing.message,
    ...explain('permissionMissing', 'The API key lacks the permission `users.track`.'),
  };
  return `# Error codes

<!-- Generated from src/errors.ts by \`npm run generate\`. -->

The body of an error has \`message\`, \`code\` and \`detail\`:

\`\`\`json
${JSON.stringify(example, null, 2)}
\`\`\`

- \`message\` is the text of the API that Penstock is compatible with. Several codes can have the same message.
- \`code\` is stable. Match on \`code\` in new clients.
- \`detail\` is written for people. It gives the value, the limit and the remedy, and its text may change.

Errors of [SCIM](scim.md) have the form of RFC 7644 and no \`code\`. Entries of \`errors\` keep the members \`type\`, \`input_array\` and \`index\`.

| Code | Status | Message | Meaning | What to do |
| --- | --- | --- | --- | --- |
${rows.join('\n')}
`;
}
