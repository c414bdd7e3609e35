import path from 'node:path';
import { createSegment } from '../admin/definitions.ts';
import { commandLine, findWorkspace } from '../admin/installation.ts';
import { patternOf } from '../integrations/schedule.ts';
import { fileFormats, type SourceDefinition } from '../integrations/source.ts';
import type { Config } from '../platform/config.ts';
import type { SeedDefinitions } from '../processes/host.ts';
import { readDefinition as readFilter } from '../profile/segment.ts';
import { createGroup } from '../resources/groups.ts';
import { createIntegration } from '../resources/integration-store.ts';
import type { Database } from '../store/database.ts';

type Source = Record<string, string> & { type: SourceDefinition['type'] };

/** Creates the definitions of a seed in the first workspace, like the commands of `penstock`. */
export async function seedDefinitions(database: Database, config: Config): Promise<SeedDefinitions> {
  const { id: workspaceId } = await findWorkspace(database, 'default');
  const context = { database, actor: commandLine() };
  return {
    async subscriptionGroup({ id, name, channel }) {
      return (await createGroup(context, { id, workspaceId, name, channel: String(channel) })).id;
    },
    async segment({ id, name, purpose = '', definition }) {
      const filter = readFilter(definition!);
      const given = { id, workspaceId, name, purpose: String(purpose), definition: filter };
      return (await createSegment(database, given)).id;
    },
    async integration({ id, name, kind, schedule, update_existing_only, draft, ...given }) {
      if (typeof schedule === 'string') patternOf(schedule);
      const { source, credentials } = readSource(given.source as Source);
      const integration = {
        ...{ id, workspaceId, name, source, credentials, contactEmails: '' },
        kind: kind as 'attributes',
        ...(typeof schedule === 'string' && { schedule: schedule.trim() }),
        updateExistingOnly: update_existing_only === true,
        draft: draft === true,
      };
      return (await createIntegration(integration, { ...context, config })).id;
    },
  };
}

function readSource({
  type,
  ...given
}: Source): Pick<Parameters<typeof createIntegration>[0], 'source' | 'credentials'> {
  if (type === 'postgres') {
    const { host, database, table, port = 5432, tls = 'verified', user, password } = given;
    return {
      source: { type, host, port: Number(port), database, table, tls } as SourceDefinition,
      credentials: { user: user!, password: password! },
    };
  }
  const { format } = given;
  if (!fileFormats.some((one) => one === format))
    throw new Error(`'source.format' is not valid: it must be one of ${fileFormats.join(', ')}`);
  if (type === 'folder')
    return {
      source: { type, path: path.resolve(given.path!), format } as SourceDefinition,
      credentials: undefined,
    };
  const { bucket, prefix = '', region, endpoint, access_key_id, secret_access_key } = given;
  return {
    source: { type, bucket, prefix, region, format, ...(endpoint && { endpoint }) } as SourceDefinition,
    credentials: { access_key_id: access_key_id!, secret_access_key: secret_access_key! },
  };
}
