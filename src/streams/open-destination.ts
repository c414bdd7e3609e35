import { decryptCredentials } from '../integrations/definition.ts';
import { SourceError } from '../integrations/source.ts';
import { refusalOfUrl } from '../platform/outgoing.ts';
import type { Reach } from '../platform/reach.ts';
import { DeliveryError, type Destination } from './destination.ts';
import { isKafkaSettings, openKafka } from './kafka.ts';
import { openWebhook } from './webhook.ts';

export const destinationKinds = ['webhook', 'kafka'] as const;
export type DestinationKind = (typeof destinationKinds)[number];

/** As it is stored. */
export interface StoredDestination {
  id: string;
  kind: string;
  settings: Record<string, unknown>;
  secret: Uint8Array | null;
}

export interface OpeningOptions {
  reach: Reach;
  /** Any of them decrypts. */
  keys: readonly Buffer[];
}

/** Where it is, for people; an address without its query, which may open something. */
export function placeOf({ kind, settings }: Pick<StoredDestination, 'kind' | 'settings'>): string {
  if (kind === 'kafka' && isKafkaSettings(settings))
    return `kafka://${settings.brokers.join(',')}/${settings.topic}`;
  const { url } = settings;
  if (typeof url !== 'string' || !URL.canParse(url)) return kind;
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname}`;
}

/** The one place that knows the kinds. @throws {DeliveryError} when it cannot be opened */
export function openDestination(stored: StoredDestination, { reach, keys }: OpeningOptions): Destination {
  const { kind, settings } = stored;
  if (kind === 'kafka') {
    if (!isKafkaSettings(settings)) throw new DeliveryError('its brokers or its topic are none');
    const { brokers, topic, tls, sasl } = settings;
    const account = sasl && { sasl, password: passwordOf(stored, keys) };
    return openKafka({ brokers, topic, tls, ...account, reach });
  }
  if (kind !== 'webhook')
    throw new DeliveryError(`this release knows no destinations of the kind ${JSON.stringify(kind)}`);
  const { url } = settings;
  if (typeof url !== 'string' || refusalOfUrl(url)) throw new DeliveryError('its address is none');
  return openWebhook({ url, secret: secretOf(stored, keys), reach });
}

function secretOf(stored: StoredDestination, keys: readonly Buffer[]): string {
  const credentials = credentialsOf(stored, keys);
  if (credentials && 'webhook_secret' in credentials) return credentials.webhook_secret;
  throw new DeliveryError('its secret is missing');
}

function passwordOf(stored: StoredDestination, keys: readonly Buffer[]): string {
  const credentials = credentialsOf(stored, keys);
  if (credentials && 'password' in credentials) return credentials.password;
  throw new DeliveryError('its password is missing');
}

function credentialsOf({ id, secret }: StoredDestination, keys: readonly Buffer[]) {
  try {
    return secret ? decryptCredentials(secret, id, keys) : undefined;
  } catch (error) {
    if (error instanceof SourceError) throw new DeliveryError(error.message, { cause: error });
    throw error;
  }
}
