import type { Command } from 'commander';
import type { PreferenceCenter } from '../../generated/prisma/client.ts';
import type { Json } from '../../profile/json.ts';
import { type AuditEntry, audited } from '../../store/audit.ts';
import type { Database } from '../../store/database.ts';
import { findLinkUser, type Revoked, revokeLinks } from '../../store/preference-centers.ts';
import { parseExternalId, parseId } from '../arguments.ts';
import { commandLine } from '../audit.ts';
import { addNoun, addVerb, PENSTOCK, Refusal } from '../command.ts';
import { findWorkspace, withInstallation } from '../lookup.ts';
import { addList, printRow, type Row } from '../output.ts';

export function addPreferenceCenters(program: Command): void {
  const noun = addNoun(program, 'preference-centers', {
    sentence:
      'List and show preference centers, and revoke the links that open them. They are written through the API.',
    example: 'preference-centers list --workspace default',
  });
  addList(noun, {
    one: 'preference center',
    many: 'preference centers',
    sentence: 'List the preference centers of a workspace, the oldest id first, drafts too.',
    example: 'preference-centers list --workspace default --json',
    owner: 'workspace',
    required: true,
    find: (prisma, page) => prisma.preferenceCenter.findMany(page),
    rowOf,
  });
  addVerb(noun, 'show', {
    sentence: 'Show a preference center with its templates, and when its links were last revoked.',
    example: 'preference-centers show 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f --workspace default',
  })
    .argument('<id>', 'id of the preference center', parseId)
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .action(show);
  addVerb(noun, 'revoke', {
    sentence:
      'Revoke the links of a preference center or of a user that were made until now: they open nothing from now on.',
    example: 'preference-centers revoke --workspace default --external-id ada',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--center <id>', 'links to this preference center, whoever they are for', parseId)
    .option(
      '--external-id <id>',
      'links for this user, whichever preference center they open',
      parseExternalId,
    )
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
      ...rowOf(center),
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
    throw new Refusal('name the links to revoke by one of --center and --external-id');
  }
  await withInstallation(async ({ database }) => {
    const { id: workspaceId, name } = await findWorkspace(database, workspace);
    const subject: Revoked =
      center === undefined
        ? { kind: 'user', id: await requireUser(database, workspaceId, externalId!) }
        : { kind: 'center', id: (await requireCenter(database, workspaceId, center)).id };
    const revokedAt = await audited(database.pool, commandLine(), async (tx) => {
      const of = { kind: subject.kind === 'user' ? 'user' : 'preference_center', id: subject.id };
      const entry: AuditEntry = { action: 'preference_links.revoke', subject: of, workspaceId };
      return { result: await revokeLinks(tx, workspaceId, subject), entries: [entry] };
    });
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

async function requireUser({ pool }: Database, workspaceId: string, externalId: string): Promise<string> {
  const user = await findLinkUser(pool, workspaceId, externalId);
  if (!user) throw new Refusal(`no user of the workspace has the external id '${externalId}'`);
  return user.id;
}

function rowOf({ id, name, state, createdAt, updatedAt }: PreferenceCenter): Row {
  return {
    preference_center_api_id: id,
    name,
    state,
    created_at: createdAt.toISOString(),
    updated_at: updatedAt.toISOString(),
  };
}
