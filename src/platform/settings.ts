import { consoleSettings } from './settings/console.ts';
import {
  exportSettings,
  outgoingSettings,
  retentionSettings,
  streamSettings,
  syncSettings,
} from './settings/data.ts';
import { httpSettings, loadSettings } from './settings/http.ts';
import { healthSettings } from './settings/processes.ts';
import { installationSettings, postgresSettings, queueSettings } from './settings/stores.ts';
import { telemetrySettings } from './settings/telemetry.ts';

/**
 * All settings by their name in the environment. config.ts reads them; .env.example and docs/settings.md are generated
 * from them.
 */
export const settings = {
  ...installationSettings,
  ...postgresSettings,
  ...queueSettings,
  ...httpSettings,
  ...loadSettings,
  ...consoleSettings,
  ...healthSettings,
  ...outgoingSettings,
  ...syncSettings,
  ...streamSettings,
  ...exportSettings,
  ...retentionSettings,
  ...telemetrySettings,
} as const;

export type SettingName = keyof typeof settings;

/**
 * All settings by group, in the order of the documentation. A group is named after the subject that a reader
 * wants to configure.
 */
export const settingGroups: Readonly<Record<string, Partial<Record<SettingName, object>>>> = {
  Installation: installationSettings,
  Postgres: postgresSettings,
  'Redis and the queue': queueSettings,
  'HTTP API': httpSettings,
  'Load limits': loadSettings,
  'Console and sign-in': consoleSettings,
  'Health and shutdown': healthSettings,
  'Outgoing connections': outgoingSettings,
  'Syncs and credentials': syncSettings,
  Streams: streamSettings,
  'Exports and buckets': exportSettings,
  Retention: retentionSettings,
  'Logs, metrics and traces': telemetrySettings,
};
