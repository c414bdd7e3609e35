import { type Command, InvalidArgumentError, Option } from 'commander';
import { normalizePhone } from '../../profile/addresses.ts';
import { audited } from '../../store/audit.ts';
import { type InvalidReason, invalidReasons, markInvalidNumbers } from '../../store/invalid-phone-numbers.ts';
import { commandLine } from '../audit.ts';
import { addNoun, addVerb } from '../command.ts';
import { findWorkspace, withInstallation } from '../lookup.ts';
import { printRow } from '../output.ts';

export function addPhoneNumbers(program: Command): void {
  const noun = addNoun(program, 'phone-numbers', {
    sentence: 'Keep the list of phone numbers that no message reaches.',
    example: 'phone-numbers mark-invalid +14155552671 --workspace default --reason deactivated',
  });
  addVerb(noun, 'mark-invalid', {
    sentence: 'Put phone numbers on the list that GET /sms/invalid_phone_numbers tells of.',
    example: 'phone-numbers mark-invalid +14155552671 --workspace default --reason deactivated',
  })
    .argument('<phones...>', 'phone numbers in E.164', parsePhone)
    .requiredOption('--workspace <workspace>', 'name or id of their workspace')
    .addOption(
      new Option('--reason <reason>', 'what is known of them')
        .choices(invalidReasons)
        .default('provider_error'),
    )
    .action(markInvalid);
}

function parsePhone(text: string, before: string[] = []): string[] {
  const read = normalizePhone(text);
  if (!read?.valid) throw new InvalidArgumentError('It is a phone number in E.164, such as +14155552671.');
  return [...before, read.phone];
}

async function markInvalid(
  phones: string[],
  { workspace, reason, json }: { workspace: string; reason: InvalidReason; json?: boolean },
): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    await audited(database.pool, commandLine(), async (tx) => {
      await markInvalidNumbers(tx, workspaceId, { phones, reason });
      const subject = { kind: 'workspace', id: workspaceId };
      const detail = { reason, numbers: phones.length };
      return {
        result: undefined,
        entries: [{ action: 'phone_numbers.mark_invalid', subject, workspaceId, detail }],
      };
    });
    printRow(json, { workspace, reason, marked: new Set(phones).size });
  });
}
