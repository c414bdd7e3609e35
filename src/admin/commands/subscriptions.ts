import { type Command, Option } from 'commander';
import { revokePreferenceLinks } from '../../resources/operator-actions.ts';
import { preferenceCenters } from '../../resources/preference-centers.ts';
import { markInvalid, readPhone } from '../../resources/workspace-actions.ts';
import type { Database } from '../../store/database.ts';
import { type InvalidReason, invalidReasons } from '../../store/suppression-lists.ts';
import { addNoun, addVerb, PENSTOCK, parseExternalId, parseId, parserOf, Refusal } from '../command.ts';
import { commandLine, findWorkspace, withInstallation } from '../installation.ts';
import { printRow } from '../output.ts';
import { addResource } from '../resource-commands.ts';

export function addPreferenceCenters(program: Command): void {
  const noun = addResource(program, preferenceCenters);
  addVerb(noun, 'revoke', {
    sentence: 'Revoke all existing links of a preference center or of a user permanently.',
    example: 'preference-centers revoke --workspace default --external-id ada',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--center <id>', 'links of all users to this preference center', parseId)
    .option('--external-id <id>', 'links of this user to all preference centers', parseExternalId)
    .action(revoke);
}

interface RevokeOptions {
  workspace: string;
  center?: string;
  externalId?: string;
  json?: boolean;
}

async function revoke({ workspace, center, externalId, json }: RevokeOptions): Promise<void> {
  if ((center === undefined) === (externalId === undefined)) {
    throw new Refusal('set one of --center and --external-id');
  }
  await withInstallation(async ({ database }) => {
    const { id: workspaceId, name } = await findWorkspace(database, workspace);
    const links =
      center === undefined
        ? { externalId: externalId! }
        : { centerId: (await requireCenter(database, workspaceId, center)).id };
    const revokedAt = await revokePreferenceLinks({ database, actor: commandLine() }, workspaceId, links);
    printRow(json, {
      workspace: name,
      ...(center === undefined ? { external_id: externalId! } : { preference_center_api_id: center }),
      links_revoked_at: revokedAt.toISOString(),
    });
  });
}

async function requireCenter({ prisma }: Database, workspaceId: string, id: string): Promise<{ id: string }> {
  const center = await prisma.preferenceCenter.findUnique({
    where: { workspaceId_id: { workspaceId, id } },
    select: { id: true },
  });
  if (center === null) {
    throw new Refusal(
      `no preference center of the workspace has the id ${id}; see ${PENSTOCK} preference-centers list`,
    );
  }
  return center;
}

export function addPhoneNumbers(program: Command): void {
  const noun = addNoun(program, 'phone-numbers', {
    sentence: 'Manage the list of phone numbers that no message reaches.',
    example: 'phone-numbers mark-invalid +14155552671 --workspace default --reason deactivated',
  });
  addVerb(noun, 'mark-invalid', {
    sentence: 'Add phone numbers to the list that GET /sms/invalid_phone_numbers returns.',
    example: 'phone-numbers mark-invalid +14155552671 --workspace default --reason deactivated',
  })
    .argument('<phones...>', 'phone numbers in E.164', parsePhones)
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .addOption(new Option('--reason <reason>', 'reason').choices(invalidReasons).default('provider_error'))
    .action(mark);
}

const parsePhone = parserOf(readPhone);

const parsePhones = (text: string, before: string[] = []): string[] => [...before, parsePhone(text)];

async function mark(
  phones: string[],
  { workspace, reason, json }: { workspace: string; reason: InvalidReason; json?: boolean },
): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id } = await findWorkspace(database, workspace);
    await markInvalid({ database, actor: commandLine() }, { id }, { phones, reason });
    printRow(json, { workspace, reason, marked: new Set(phones).size });
  });
}
