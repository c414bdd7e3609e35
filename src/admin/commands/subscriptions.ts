import { type Command, Option } from 'commander';
import type { PreferenceCenter } from '../../generated/prisma/client.ts';
import type { Json } from '../../profile/json.ts';
import { revokePreferenceLinks } from '../../resources/operator-actions.ts';
import { keyset } from '../../resources/resource.ts';
import { markInvalid, readPhone } from '../../resources/workspace-actions.ts';
import type { Database } from '../../store/database.ts';
import { type InvalidReason, invalidReasons } from '../../store/suppression-lists.ts';
import { addNoun, addVerb, PENSTOCK, parseExternalId, parseId, parserOf, Refusal } from '../command.ts';
import { commandLine, findWorkspace, withInstallation } from '../installation.ts';
import { addList, printRow, type Row } from '../output.ts';

export function addPreferenceCenters(program: Command): void {
  const noun = addNoun(program, 'preference-centers', {
    sentence:
      'List and show preference centers, and revoke their links. Create and change them through the API.',
    example: 'preference-centers list --workspace default',
  });
  addList(noun, {
    one: 'preference center',
    many: 'preference centers',
    sentence: 'List the preference centers of a workspace, oldest first, including drafts.',
    example: 'preference-centers list --workspace default --json',
    owner: 'workspace',
    required: true,
    list: ({ database }, page) => database.prisma.preferenceCenter.findMany(keyset('workspaceId', page)),
    rowOf: centerRowOf,
  });
  addVerb(noun, 'show', {
    sentence: 'Show a preference center with its templates and the last revocation of its links.',
    example: 'preference-centers show 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f --workspace default',
  })
    .argument('<id>', 'id of the preference center', parseId)
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .action(show);
  addVerb(noun, 'revoke', {
    sentence: 'Revoke all existing links of a preference center or of a user permanently.',
    example: 'preference-centers revoke --workspace default --external-id ada',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--center <id>', 'links of all users to this preference center', parseId)
    .option('--external-id <id>', 'links of this user to all preference centers', parseExternalId)
    .action(revoke);
}

async function show(id: string, { workspace, json }: { workspace: string; json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    const center = await requireCenter(database, workspaceId, id);
    const revocation = await database.prisma.preferenceLinkRevocation.findUnique({
      where: {
        workspaceId_subjectKind_subjectId: { workspaceId, subjectKind: 'center', subjectId: id },
      },
    });
    printRow(json, {
      ...centerRowOf(center),
      preference_center_title: center.title,
      preference_center_options: center.options as Json,
      preference_center_page_html: center.pageHtml,
      confirmation_page_html: center.confirmationHtml,
      links_revoked_at: revocation?.revokedAt.toISOString() ?? null,
    });
  });
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

async function requireCenter(
  { prisma }: Database,
  workspaceId: string,
  id: string,
): Promise<PreferenceCenter> {
  const center = await prisma.preferenceCenter.findUnique({ where: { workspaceId_id: { workspaceId, id } } });
  if (center === null) {
    throw new Refusal(
      `no preference center of the workspace has the id ${id}; see ${PENSTOCK} preference-centers list`,
    );
  }
  return center;
}

function centerRowOf({ id, name, state, createdAt, updatedAt }: PreferenceCenter): Row {
  return {
    preference_center_api_id: id,
    name,
    state,
    created_at: createdAt.toISOString(),
    updated_at: updatedAt.toISOString(),
  };
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
