import { Ajv, type ErrorObject } from 'ajv';
import { rulesOf, type VendorLevel } from '../schemas/vendor-rules.ts';
import { wholeEnvironment } from './environment.ts';
import { networksOf } from './reach.ts';
import { settings } from './settings.ts';

export { settings };

type Values = {
  readonly [K in keyof typeof settings]: (typeof settings)[K]['type'] extends 'integer' ? number : string;
};

/**
 * Settings whose default depends on another setting. `readConfig` resolves them, and all other code reads the
 * resolved values. Deriving them in a second place could give a process another value than its parent or the
 * command line has.
 */
interface Resolved {
  readonly DEPLOYMENT_FORM: 'embedded' | 'production';
  /** The store that holds accepted objects until they are applied. */
  readonly QUEUE: 'redis' | 'postgres';
  readonly SERVICE_ID_FIELD: string;
  readonly VENDOR_RULES: VendorLevel;
}

/** The values of all settings. */
export type Config = Omit<Values, keyof Resolved> & Resolved;

/** Thrown when a setting is invalid. The message names each invalid setting, its rule and its value. */
export class ConfigError extends Error {}

/**
 * Reads and validates the settings. An empty value counts as unset.
 * @throws {ConfigError} naming every invalid setting.
 */
export function readConfig(environment: NodeJS.ProcessEnv = wholeEnvironment()): Config {
  const ajv = new Ajv({
    coerceTypes: true,
    allErrors: true,
    strict: false,
    verbose: true,
    validateSchema: false,
  });
  const values: Record<string, unknown> = {};
  // Compile only the rules of settings that are set: compiling all of them takes a tenth of the start of a
  // worker.
  const given: Record<string, object> = {};
  for (const [name, setting] of Object.entries(settings)) {
    const value = environment[name]?.trim();
    values[name] = value || setting.default;
    if (value) given[name] = setting;
  }
  const check = ajv.compile({ type: 'object', properties: given });
  if (!check(values))
    throw new ConfigError(`wrong setting: ${(check.errors ?? []).map(describe).join('; ')}`);
  const config = Object.freeze({ ...values, ...resolve(values as Values, given) }) as Config;
  if (config.MAX_PENDING_BYTES < config.MAX_BODY_BYTES) {
    throw new ConfigError('wrong setting: MAX_PENDING_BYTES must be >= MAX_BODY_BYTES');
  }
  if (config.QUEUE === 'redis' && !config.REDIS_URL) {
    throw new ConfigError('wrong setting: QUEUE is redis, so REDIS_URL must be set');
  }
  if (config.REDIS_SENTINELS && !config.REDIS_URL) {
    throw new ConfigError('wrong setting: REDIS_SENTINELS needs REDIS_URL');
  }
  requireOneCluster(config);
  if (config.SHARDS > 1 && config.QUEUE === 'postgres') {
    throw new ConfigError('wrong setting: SHARDS needs the queue in Redis: one Postgres is one shard');
  }
  if ((config.BOOTSTRAP_SCIM_TOKEN === '') !== (config.BOOTSTRAP_SCIM_ORIGIN === '')) {
    throw new ConfigError('wrong setting: set BOOTSTRAP_SCIM_TOKEN and BOOTSTRAP_SCIM_ORIGIN, or neither');
  }
  if (config.OIDC_ISSUER && !(config.OIDC_CLIENT_ID && config.BOARD_URL)) {
    throw new ConfigError('wrong setting: OIDC_ISSUER needs OIDC_CLIENT_ID and BOARD_URL');
  }
  requireNetworks(config);
  return config;
}

/** @throws {ConfigError} if DEPLOYMENT_FORM contradicts DATABASE_URL */
function resolve(values: Values, given: Record<string, object>): Resolved {
  const { DEPLOYMENT_FORM: form, DATABASE_URL, DATABASE_DIRECT_URL, QUEUE, REDIS_URL } = values;
  const level = values.VENDOR_RULES as VendorLevel;
  if (form === 'embedded' && DATABASE_URL) {
    throw new ConfigError(
      'wrong setting: DEPLOYMENT_FORM is embedded, so DATABASE_URL must be empty; for a Postgres of your own set DEPLOYMENT_FORM=production',
    );
  }
  if (form === 'production' && !DATABASE_URL)
    throw new ConfigError('wrong setting: DEPLOYMENT_FORM is production, so DATABASE_URL must be set');
  if (DATABASE_DIRECT_URL && !DATABASE_URL)
    throw new ConfigError('wrong setting: DATABASE_DIRECT_URL needs DATABASE_URL; set both, or neither');
  return {
    DEPLOYMENT_FORM: DATABASE_URL ? 'production' : 'embedded',
    QUEUE: (QUEUE || (REDIS_URL ? 'redis' : 'postgres')) as Resolved['QUEUE'],
    VENDOR_RULES: level,
    SERVICE_ID_FIELD: given.SERVICE_ID_FIELD ? values.SERVICE_ID_FIELD : rulesOf[level].serviceIdField,
  };
}

/**
 * Rejects settings that contradict REDIS_CLUSTER_NODES: a cluster reports its primaries itself and has only
 * one database.
 */
function requireOneCluster({ REDIS_URL, REDIS_SENTINELS, REDIS_CLUSTER_NODES }: Config): void {
  if (!REDIS_CLUSTER_NODES) return;
  if (!REDIS_URL) throw new ConfigError('wrong setting: REDIS_CLUSTER_NODES needs REDIS_URL');
  if (REDIS_SENTINELS)
    throw new ConfigError('wrong setting: set REDIS_CLUSTER_NODES or REDIS_SENTINELS, not both');
  if (!URL.canParse(REDIS_URL)) throw new ConfigError('wrong setting: REDIS_URL must be a URL');
  if (!['', '/', '/0'].includes(new URL(REDIS_URL).pathname))
    throw new ConfigError('wrong setting: REDIS_URL names a database, and a cluster has only the first');
}

/** Checks the values of the network lists. Their syntax has been checked by the patterns of the settings. */
function requireNetworks(config: Config): void {
  for (const name of ['REFUSED_NETWORKS', 'ALLOWED_NETWORKS', 'SYNC_REFUSED_NETWORKS'] as const) {
    try {
      networksOf(config[name]);
    } catch (error) {
      throw new ConfigError(
        `wrong setting: ${name} has ${(error as Error).message.replace(' is', ', which is')}`,
      );
    }
  }
}

/**
 * Names the setting, its rule and the rejected value. Rules with a pattern omit the value, because it may
 * contain a secret.
 */
function describe({ instancePath, keyword, params, parentSchema, message, data }: ErrorObject): string {
  const name = instancePath.slice(1);
  if (keyword === 'not')
    return `${name} must not be the name of another field (it is ${JSON.stringify(data)})`;
  if (keyword === 'pattern') return `${name} ${parentSchema?.rule}`;
  const allowed = keyword === 'enum' ? `: ${params.allowedValues.join(', ')}` : '';
  return `${name} ${message}${allowed} (it is ${JSON.stringify(data)})`;
}
