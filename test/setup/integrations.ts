import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import type { IntegrationKind, SourceDefinition } from '../../src/integrations/source.ts';

export interface TestIntegration {
  name?: string;
  kind?: IntegrationKind;
  status?: 'draft' | 'active' | 'paused';
  source?: SourceDefinition;
  schedule?: string | null;
  contactEmails?: string;
  updateExistingOnly?: boolean;
}

/** Creates an integration of the workspace without credentials, like the admin command. @returns its id */
export async function createIntegration(
  pool: pg.Pool,
  workspaceId: string,
  change: TestIntegration = {},
): Promise<string> {
  const id = uuidv7();
  const source = change.source ?? { type: 'folder', path: `/exports/${id}`, format: 'csv' };
  await pool.query(
    `insert into integrations
       (id, workspace_id, name, kind, warehouse_type, status, source, schedule, contact_emails, update_existing_only)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
    [
      id,
      workspaceId,
      change.name ?? id,
      change.kind ?? 'attributes',
      source.type,
      change.status ?? 'active',
      JSON.stringify(source),
      change.schedule ?? null,
      change.contactEmails ?? '',
      change.updateExistingOnly ?? false,
    ],
  );
  return id;
}
