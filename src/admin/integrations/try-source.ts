import { checkColumns } from '../../integrations/check-columns.ts';
import type { Credentials, IntegrationKind, SourceDefinition } from '../../integrations/definition.ts';
import { openSource } from '../../integrations/open-source.ts';
import { type SourceColumn, SourceError } from '../../integrations/source.ts';
import { Refusal } from '../refusal.ts';

export interface Tried {
  kind: IntegrationKind;
  source: SourceDefinition;
  credentials: Credentials | undefined;
  /** Wire name of the service id. */
  serviceIdField: string;
}

/**
 * Whether a sync could read this source now, from where the command runs: opens it, and looks at its columns.
 * @throws {Refusal} saying what is wrong
 */
export async function trySource({
  kind,
  source,
  credentials,
  serviceIdField,
}: Tried): Promise<SourceColumn[]> {
  try {
    const opened = await openSource(source, credentials, { serviceIdField });
    try {
      const columns = await opened.describe();
      checkColumns(kind, columns, serviceIdField);
      return columns;
    } finally {
      await opened.close();
    }
  } catch (error) {
    if (!(error instanceof SourceError)) throw error;
    throw new Refusal(`the test of the source failed: ${error.message}`);
  }
}
