import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Credentials } from '../../integrations/source.ts';
import { ObjectStoreError } from '../../object-store/object-store.ts';
import type { Config } from '../../platform/config.ts';
import { refusalOfUrl } from '../../platform/outgoing.ts';
import { RefusedAddress, reachOf } from '../../platform/reach.ts';
import type { Json } from '../../profile/json.ts';
import {
  filePlacesOf,
  folderOf,
  isBucketPlace,
  refusalOfPlace,
  requireFolder,
  type StreamFormat,
  streamFormats,
} from '../../streams/file-places.ts';
import {
  hostOf,
  refusalOfBrokers,
  refusalOfTopic,
  type SaslMechanism,
  saslMechanisms,
} from '../../streams/kafka.ts';
import type { DestinationKind } from '../../streams/open-destination.ts';
import { newWebhookSecret, refusalOfSecret } from '../../streams/webhook.ts';
import { Refusal } from '../command.ts';
import {
  namesSecret,
  readKeyPair,
  readSecret,
  requireEndpoint,
  type SecretOptions,
} from '../integrations/source-options.ts';

/** Where a stream goes to, as the command line says it. */
export interface TargetOptions extends FileTargetOptions {
  url?: string;
  kafka?: string[];
  topic?: string;
  tls?: boolean;
  sasl?: SaslMechanism;
  user?: string;
}

interface Target {
  kind: DestinationKind;
  settings: Record<string, Json>;
  credentials?: Credentials;
  /** Made here, to be shown once. */
  newSecret?: string;
  /** How long what takes effect is gathered; absent: not at all. */
  gatherMs?: number;
}

export function addTargetOptions(command: Command): Command {
  const withStreams = command
    .option('--url <url>', 'webhook: URL to which messages are sent by POST', parse(refusalOfUrl))
    .option('--kafka <brokers>', 'Kafka: bootstrap brokers, as host:port,host:port', parseBrokers)
    .option('--topic <topic>', 'Kafka: existing topic', parse(refusalOfTopic))
    .option(
      '--tls',
      'Kafka: use TLS with the certificate authorities of Node (add yours with NODE_EXTRA_CA_CERTS)',
    )
    .addOption(new Option('--sasl <mechanism>', 'Kafka: SASL mechanism').choices(saslMechanisms))
    .option('--user <name>', 'Kafka: SASL user name (password: --secret-file or --secret-env)');
  return addFileOptions(withStreams, parse(refusalOfPlace))
    .option(
      '--secret-env <variable>',
      'environment variable with the secret (default for a webhook: a new secret is created)',
    )
    .option('--secret-file <file>', 'file with the secret; - reads standard input');
}

const parse = (refusalOf: (text: string) => string | undefined) => (text: string) => {
  const whyNot = refusalOf(text);
  if (whyNot) throw new InvalidArgumentError(`It ${whyNot}.`);
  return text;
};

function parseBrokers(text: string): string[] {
  const brokers = text.split(',').map((one) => one.trim());
  const whyNot = refusalOfBrokers(brokers);
  if (whyNot) throw new InvalidArgumentError(`They ${whyNot}.`);
  return brokers;
}

/** @throws {Refusal} for what contradicts itself, is missing, or may not be reached */
export async function readTarget(options: TargetOptions, config: Config): Promise<Target> {
  const { url, kafka, to } = options;
  if ([url, kafka, to].filter((one) => one !== undefined).length !== 1)
    throw new Refusal('set one of --url, --kafka and --to');
  for (const [name, flag] of Object.entries(fileOptions))
    if (to === undefined && options[name as keyof typeof fileOptions] !== undefined)
      throw new Refusal(`${flag} needs --to`);
  if (kafka) return readKafka({ ...options, kafka }, config);
  for (const name of ['topic', 'tls', 'sasl', 'user'] as const)
    if (options[name] !== undefined) throw new Refusal(`--${name} needs --kafka`);
  if (to !== undefined) return readFiles({ ...options, to }, config, (host) => requireAllowed(host, config));
  requireAllowed(new URL(url!).hostname, config);
  const isGiven = namesSecret(options);
  const secret = isGiven ? await readSecret(options, 'Secret') : newWebhookSecret();
  const whyNot = refusalOfSecret(secret);
  if (whyNot) throw new Refusal(`the secret ${whyNot}`);
  const credentials = { webhook_secret: secret };
  return { kind: 'webhook', settings: { url: url! }, credentials, ...(!isGiven && { newSecret: secret }) };
}

async function readKafka(
  {
    kafka: brokers,
    topic,
    tls = false,
    sasl: mechanism,
    user,
    ...options
  }: TargetOptions & { kafka: string[] },
  config: Config,
): Promise<Target> {
  if (topic === undefined) throw new Refusal('--kafka needs --topic');
  for (const broker of brokers) requireAllowed(hostOf(broker), config);
  if ((mechanism === undefined) !== (user === undefined)) throw new Refusal('set --sasl and --user together');
  if (mechanism === undefined || user === undefined) {
    if (namesSecret(options))
      throw new Refusal(
        'the secret of a Kafka destination is its SASL password; set --sasl and --user as well',
      );
    return { kind: 'kafka', settings: { brokers, topic, tls } };
  }
  const credentials = { user, password: await readSecret(options, `Password of ${user}`) };
  return { kind: 'kafka', settings: { brokers, topic, tls, sasl: { mechanism, user } }, credentials };
}

function requireAllowed(host: string, config: Config): void {
  try {
    reachOf(config).requireAllowed(host);
  } catch (error) {
    if (error instanceof RefusedAddress) throw new Refusal(error.message);
    throw error;
  }
}

/** Where files of a stream go to, as the command line says it. */
interface FileTargetOptions extends SecretOptions {
  to?: string;
  format?: StreamFormat;
  region?: string;
  endpoint?: string;
  accessKeyId?: string;
}

interface FileTarget {
  kind: 'files';
  settings: Record<string, Json>;
  credentials?: Credentials;
  gatherMs: number;
}

/** What goes with `--to` alone. */
const fileOptions = {
  format: '--format',
  region: '--region',
  endpoint: '--endpoint',
  accessKeyId: '--access-key-id',
} as const;

/**
 * How long what takes effect is gathered for a file, in milliseconds: until then nothing is leased for it. Below what
 * PenstockStreamLags fires at.
 */
const GATHER_MS = 240_000;

function addFileOptions(command: Command, parsePlace: (text: string) => string): Command {
  return command
    .option('--to <place>', 'files: target, s3://bucket/prefix or file:///folder', parsePlace)
    .addOption(
      new Option('--format <format>', 'files: format (default: gzipped NDJSON)').choices(streamFormats),
    )
    .option('--region <region>', 's3: region of the bucket')
    .option('--endpoint <url>', 's3: address of an S3-compatible service (default: AWS)')
    .option('--access-key-id <id>', 's3: access key id (default: the settings S3_*)');
}

/**
 * @param requireAllowed refuses a host that may not be reached
 * @throws {Refusal} for what contradicts itself, is missing, or may not be reached
 */
async function readFiles(
  options: FileTargetOptions & { to: string },
  config: Config,
  requireAllowed: (host: string) => void,
): Promise<FileTarget> {
  const { to, format = 'ndjson', region, endpoint, accessKeyId } = options;
  const places = filePlacesOf(config);
  const made = (settings: Record<string, Json>): FileTarget => ({
    ...{ kind: 'files', settings: { to, format, ...settings }, gatherMs: GATHER_MS },
  });
  const hasOwn = region !== undefined || endpoint !== undefined || accessKeyId !== undefined;
  if (!hasOwn && namesSecret(options)) throw new Refusal('the secret of a bucket needs --access-key-id');
  if (!isBucketPlace(to)) {
    if (hasOwn)
      throw new Refusal('--region, --endpoint and --access-key-id need a target that starts with s3://');
    saying(() => requireFolder(folderOf(to)!, places));
    return made({});
  }
  if (!hasOwn) {
    const access = saying(() => places.bucketAccess());
    if (access.endpoint !== undefined) requireAllowed(new URL(access.endpoint).hostname);
    return made({});
  }
  if (!region || !accessKeyId)
    throw new Refusal('s3:// needs --region and --access-key-id, or the settings S3_*');
  if (endpoint !== undefined) {
    requireEndpoint(endpoint);
    requireAllowed(new URL(endpoint).hostname);
  }
  const credentials = await readKeyPair(options, accessKeyId);
  return {
    ...made({ region, access_key_id: accessKeyId, ...(endpoint !== undefined && { endpoint }) }),
    credentials,
  };
}

function saying<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof ObjectStoreError ? new Refusal(`--to: ${error.message}`) : error;
  }
}
