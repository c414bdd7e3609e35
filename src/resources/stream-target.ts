import type { Credentials } from '../integrations/source.ts';
import { ObjectStoreError } from '../object-store/object-store.ts';
import type { Config } from '../platform/config.ts';
import { refusalOfUrl } from '../platform/outgoing.ts';
import { RefusedAddress, reachOf } from '../platform/reach.ts';
import type { Json } from '../profile/json.ts';
import {
  fileLocationsOf,
  folderOf,
  isBucketLocation,
  refusalOfLocation,
  requireFolder,
  type StreamFormat,
  streamFormats,
} from '../streams/file-locations.ts';
import {
  hostOf,
  refusalOfBrokers,
  refusalOfTopic,
  type SaslMechanism,
  saslMechanisms,
} from '../streams/kafka.ts';
import type { DestinationKind } from '../streams/open-destination.ts';
import { newWebhookSecret, refusalOfSecret } from '../streams/webhook.ts';
import { choice, commandOnly, flag, inPart, optional, secret, text, type ValuesOf } from './fields.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import { requireEndpoint } from './source.ts';

/**
 * Target of a stream, as command options and form fields. Streams to files are created by the command line only, because
 * their folders and buckets belong to the operator and are reached from the machine of sync.
 */
export const targetFields = {
  url: inPart(
    'Webhook',
    optional(
      text(
        { label: 'Webhook URL', help: 'webhook: URL to which messages are sent by POST', value: 'url' },
        rule(refusalOfUrl),
        {
          ...{ maxLength: 2000, placeholder: 'https://crm.example.com/penstock' },
        },
      ),
    ),
  ),
  kafka: inPart(
    'Kafka',
    optional(
      text(
        {
          label: 'Kafka brokers',
          help: 'Kafka: bootstrap brokers, as host:port,host:port',
          value: 'brokers',
        },
        readBrokers,
        { maxLength: 2000 },
      ),
    ),
  ),
  topic: inPart(
    'Kafka',
    optional(
      text({ label: 'Kafka topic', help: 'Kafka: existing topic', value: 'topic' }, rule(refusalOfTopic)),
    ),
  ),
  tls: inPart(
    'Kafka',
    flag({
      label: 'Kafka TLS',
      help: 'Kafka: use TLS with the certificate authorities of Node (add yours with NODE_EXTRA_CA_CERTS)',
    }),
  ),
  sasl: inPart(
    'Kafka',
    optional(
      choice<SaslMechanism>(
        { label: 'Kafka SASL mechanism', help: 'Kafka: SASL mechanism', value: 'mechanism' },
        saslMechanisms,
      ),
    ),
  ),
  user: inPart(
    'Kafka',
    optional(
      text(
        { label: 'Kafka user', help: 'Kafka: SASL user name (its password is the secret)', value: 'name' },
        (given) => given,
      ),
    ),
  ),
  to: commandOnly(
    optional(
      text(
        { label: 'File target', help: 'files: target, s3://bucket/prefix or file:///folder', value: 'place' },
        rule(refusalOfLocation),
        {
          maxLength: 2000,
        },
      ),
    ),
  ),
  format: commandOnly(
    optional(
      choice<StreamFormat>(
        { label: 'File format', help: 'files: format (default: gzipped NDJSON)', value: 'format' },
        streamFormats,
      ),
    ),
  ),
  region: commandOnly(
    optional(
      text({ label: 'S3 region', help: 's3: region of the bucket', value: 'region' }, (given) => given),
    ),
  ),
  endpoint: commandOnly(
    optional(
      text(
        {
          label: 'S3 endpoint',
          help: 's3: address of an S3-compatible service (default: AWS)',
          value: 'url',
        },
        (given) => given,
      ),
    ),
  ),
  access_key_id: commandOnly(
    optional(
      text(
        { label: 'S3 access key id', help: 's3: access key id (default: the settings S3_*)', value: 'id' },
        (given) => given,
      ),
    ),
  ),
  secret: secret({
    label: 'Secret',
    help: 'secret of the webhook, of the Kafka user or of the S3 access key (default for a webhook: a new secret)',
  }),
};

type TargetValues = ValuesOf<typeof targetFields>;

interface Target {
  kind: DestinationKind;
  settings: Record<string, Json>;
  credentials?: Credentials;
  /** A generated secret, to be shown once. */
  newSecret?: string;
  /** Milliseconds for which changes are collected before delivery; absent for none. */
  gatherMs?: number;
}

/** Creates a reader from a rule whose message completes a sentence. */
function rule(refusalOf: (text: string) => string | undefined) {
  return (text: string): string => {
    const whyNot = refusalOf(text);
    if (whyNot) throw new InvalidValue(`It ${whyNot}.`);
    return text;
  };
}

function readBrokers(text: string): string[] {
  const brokers = text.split(',').map((one) => one.trim());
  const whyNot = refusalOfBrokers(brokers);
  if (whyNot) throw new InvalidValue(`They ${whyNot}.`);
  return brokers;
}

/** @throws {Refusal} if options conflict or are missing, or the target may not be reached */
export async function readTarget(options: TargetValues, config: Config): Promise<Target> {
  const { url, kafka, to } = options;
  if ([url, kafka, to].filter((one) => one !== undefined).length !== 1)
    throw new Refusal('set one destination: one of --url, --kafka and --to', 'url');
  for (const [name, flag] of Object.entries(fileOptions))
    if (to === undefined && options[name as keyof typeof fileOptions] !== undefined)
      throw new Refusal(`${flag} needs --to`, name);
  if (kafka) return readKafka({ ...options, kafka }, config);
  for (const name of ['topic', 'tls', 'sasl', 'user'] as const)
    if (options[name]) throw new Refusal(`--${name} needs --kafka`, name);
  if (to !== undefined)
    return readFiles({ ...options, to }, config, (host) => requireAllowed(host, { config, field: 'to' }));
  requireAllowed(new URL(url!).hostname, { config, field: 'url' });
  const { isGiven } = options.secret;
  const secret = isGiven ? await options.secret.read('Secret') : newWebhookSecret();
  const whyNot = refusalOfSecret(secret);
  if (whyNot) throw new Refusal(`the secret ${whyNot}`, 'secret');
  const credentials = { webhook_secret: secret };
  return { kind: 'webhook', settings: { url: url! }, credentials, ...(!isGiven && { newSecret: secret }) };
}

async function readKafka(
  { kafka: brokers, topic, tls = false, sasl: mechanism, user, secret }: TargetValues & { kafka: string[] },
  config: Config,
): Promise<Target> {
  if (topic === undefined) throw new Refusal('--kafka needs --topic', 'topic');
  for (const broker of brokers) requireAllowed(hostOf(broker), { config, field: 'kafka' });
  if ((mechanism === undefined) !== (user === undefined))
    throw new Refusal('set --sasl and --user together', 'sasl');
  if (mechanism === undefined || user === undefined) {
    if (secret.isGiven)
      throw new Refusal(
        'the secret of a Kafka destination is its SASL password; set --sasl and --user as well',
        'secret',
      );
    return { kind: 'kafka', settings: { brokers, topic, tls } };
  }
  const credentials = { user, password: await secret.read(`Password of ${user}`) };
  return { kind: 'kafka', settings: { brokers, topic, tls, sasl: { mechanism, user } }, credentials };
}

function requireAllowed(
  host: string,
  { config, field }: { config: Config; field: 'to' | 'url' | 'kafka' },
): void {
  try {
    reachOf(config).requireAllowed(host);
  } catch (error) {
    if (error instanceof RefusedAddress) throw new Refusal(error.message, field);
    throw error;
  }
}

interface FileTarget {
  kind: 'files';
  settings: Record<string, Json>;
  credentials?: Credentials;
  gatherMs: number;
}

/** Options that require `--to`. */
const fileOptions = {
  format: '--format',
  region: '--region',
  endpoint: '--endpoint',
  access_key_id: '--access-key-id',
} as const;

/**
 * Milliseconds for which changes are collected for a file. No lease is taken before. Must be lower than the threshold
 * of PenstockStreamLags.
 */
const GATHER_MS = 240_000;

/**
 * @param requireAllowed throws if a host may not be reached
 * @throws {Refusal} if options conflict or are missing, or the target may not be reached
 */
async function readFiles(
  options: TargetValues & { to: string },
  config: Config,
  requireAllowed: (host: string) => void,
): Promise<FileTarget> {
  const { to, format = 'ndjson', region, endpoint, access_key_id: accessKeyId, secret } = options;
  const locations = fileLocationsOf(config);
  const made = (settings: Record<string, Json>): FileTarget => ({
    ...{ kind: 'files', settings: { to, format, ...settings }, gatherMs: GATHER_MS },
  });
  const hasOwn = region !== undefined || endpoint !== undefined || accessKeyId !== undefined;
  if (!hasOwn && secret.isGiven)
    throw new Refusal('the secret of a bucket needs --access-key-id', 'access_key_id');
  if (!isBucketLocation(to)) {
    if (hasOwn)
      throw new Refusal(
        '--region, --endpoint and --access-key-id need a target that starts with s3://',
        'to',
      );
    asInvalidValue(() => requireFolder(folderOf(to)!, locations));
    return made({});
  }
  if (!hasOwn) {
    const access = asInvalidValue(() => locations.bucketAccess());
    if (access.endpoint !== undefined) requireAllowed(new URL(access.endpoint).hostname);
    return made({});
  }
  if (!region || !accessKeyId)
    throw new Refusal('s3:// needs --region and --access-key-id, or the settings S3_*', 'region');
  if (endpoint !== undefined) {
    requireEndpoint(endpoint);
    requireAllowed(new URL(endpoint).hostname);
  }
  const credentials = {
    access_key_id: accessKeyId,
    secret_access_key: await secret.read(`Secret access key of ${accessKeyId}`),
  };
  return {
    ...made({ region, access_key_id: accessKeyId, ...(endpoint !== undefined && { endpoint }) }),
    credentials,
  };
}

function asInvalidValue<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof ObjectStoreError ? new Refusal(`--to: ${error.message}`, 'to') : error;
  }
}
