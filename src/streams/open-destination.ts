import { decryptCredentials, SourceError } from '../integrations/source.ts';
import { refusalOfUrl } from '../platform/outgoing.ts';
import { type AddressSettings, type Reach, reachOf } from '../platform/reach.ts';
import { DeliveryError, type Destination, type FileDestination } from './destination.ts';
import {
  type FileLocations,
  type FileLocationsSettings,
  fileLocationsOf,
  isFilesSettings,
} from './file-locations.ts';
import { openFiles } from './files.ts';
import { isKafkaSettings, openKafka } from './kafka.ts';
import { openWebhook } from './webhook.ts';

export const destinationKinds = ['webhook', 'kafka', 'files'] as const;
export type DestinationKind = (typeof destinationKinds)[number];

/** A destination as it is stored. */
export interface StoredDestination {
  id: string;
  kind: string;
  settings: Record<string, unknown>;
  secret: Uint8Array | null;
}

export interface OpeningOptions {
  reach: Reach;
  /** Keys of INTEGRATION_KEY. Any of them may decrypt the secret. */
  keys: readonly Buffer[];
  files: FileLocations;
  /** API name of the service id. */
  serviceIdField: string;
}

/** Creates the options from the settings of a process. @param keys keys of INTEGRATION_KEY */
export function openingBy(
  config: AddressSettings & FileLocationsSettings & { readonly SERVICE_ID_FIELD: string },
  keys: readonly Buffer[],
): OpeningOptions {
  const { SERVICE_ID_FIELD: serviceIdField } = config;
  return { reach: reachOf(config), keys, files: fileLocationsOf(config), serviceIdField };
}

/**
 * Returns the location of a destination for display. The query of a URL is omitted, because it may contain a
 * secret.
 */
export function locationOf({ kind, settings }: Pick<StoredDestination, 'kind' | 'settings'>): string {
  if (kind === 'kafka' && isKafkaSettings(settings))
    return `kafka://${settings.brokers.join(',')}/${settings.topic}`;
  if (kind === 'files' && isFilesSettings(settings)) return settings.to;
  const { url } = settings;
  if (typeof url !== 'string' || !URL.canParse(url)) return kind;
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname}`;
}

/** Opens a destination of any kind. @throws {DeliveryError} if its settings are invalid */
export function openDestination(
  stored: StoredDestination,
  { reach, keys, files, serviceIdField }: OpeningOptions,
): Destination | FileDestination {
  const { kind, settings } = stored;
  if (kind === 'files') {
    if (!isFilesSettings(settings))
      throw new DeliveryError('destination URL is missing, or is not s3://bucket/prefix or file:///folder');
    const account = settings.access_key_id === undefined ? undefined : accountOf(stored, keys);
    return openFiles({ settings, account, reach, locations: files, serviceIdField });
  }
  if (kind === 'kafka') {
    if (!isKafkaSettings(settings)) throw new DeliveryError('destination has no valid brokers or topic');
    const { brokers, topic, tls, sasl } = settings;
    const account = sasl && { sasl, password: passwordOf(stored, keys) };
    return openKafka({ brokers, topic, tls, ...account, reach });
  }
  if (kind !== 'webhook')
    throw new DeliveryError(`this release does not support destinations of the kind ${JSON.stringify(kind)}`);
  const { url } = settings;
  if (typeof url !== 'string' || refusalOfUrl(url))
    throw new DeliveryError('destination URL is missing or invalid');
  return openWebhook({ url, secret: secretOf(stored, keys), reach });
}

function secretOf(stored: StoredDestination, keys: readonly Buffer[]): string {
  const credentials = credentialsOf(stored, keys);
  if (credentials && 'webhook_secret' in credentials) return credentials.webhook_secret;
  throw new DeliveryError('secret of the destination is missing');
}

function passwordOf(stored: StoredDestination, keys: readonly Buffer[]): string {
  const credentials = credentialsOf(stored, keys);
  if (credentials && 'password' in credentials) return credentials.password;
  throw new DeliveryError('SASL password of the destination is missing');
}

function accountOf(stored: StoredDestination, keys: readonly Buffer[]) {
  const credentials = credentialsOf(stored, keys);
  if (credentials && 'access_key_id' in credentials) return credentials;
  throw new DeliveryError('secret access key of the destination is missing');
}

function credentialsOf({ id, secret }: StoredDestination, keys: readonly Buffer[]) {
  try {
    return secret ? decryptCredentials(secret, id, keys) : undefined;
  } catch (error) {
    if (error instanceof SourceError) throw new DeliveryError(error.message, { cause: error });
    throw error;
  }
}
