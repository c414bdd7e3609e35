import type { ErrorObject } from 'ajv';
import { LineCounter, parse, parseDocument, YAMLParseError } from 'yaml';
import { nowDate } from '../../platform/clock.ts';
import type { SeedDefinition as Definition, SeedDefinitions } from '../../processes/host.ts';
import type { Json } from '../../profile/json.ts';
import { isRecord } from '../../profile/values.ts';
import { compile, describeError } from '../../schemas/compile.ts';
import { member, seedSchema, sources } from './seed-schema.ts';

interface ApiAnswer {
  status: number;
  body: Record<string, Json>;
}

/** The program parts through which a seed takes effect. */
interface SeedTarget {
  definitions: SeedDefinitions;
  /** Sends a request to the API. */
  send(method: string, path: string, body: Record<string, Json>): Promise<ApiAnswer>;
}

/** The problems of a refused seed, each with its position and rule. */
export class SeedError extends Error {
  override name = 'SeedError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('; '));
    this.problems = problems;
  }
}

type Path = (string | number)[];

const MAX_PROBLEMS = 100;

interface Seed {
  subscription_groups?: Definition[];
  users?: Record<string, Json>[];
  events?: Record<string, Json>[];
  purchases?: Record<string, Json>[];
  preference_centers?: Record<string, Json>[];
  segments?: Definition[];
  integrations?: Definition[];
}

const isSeed = compile<Seed>(seedSchema);
const areSources = Object.fromEntries(
  Object.entries(sources).map(([type, { properties, required }]) => [
    type,
    compile(member({ type: {}, ...properties }, ['type', ...required])),
  ]),
);

const pathOf = (error: ErrorObject): Path =>
  error.instancePath
    .split('/')
    .slice(1)
    .map((part) => (/^\d+$/.test(part) ? Number(part) : part.replaceAll('~1', '/').replaceAll('~0', '~')));

/** Describes problems with their position in the text and the rule. */
function createProblems(text: string) {
  let lines: { document: ReturnType<typeof parseDocument>; counter: LineCounter } | undefined;

  function lineOf(path: Path): number | undefined {
    if (!lines) {
      const counter = new LineCounter();
      lines = { document: parseDocument(text, { lineCounter: counter }), counter };
    }
    const { document, counter } = lines;
    for (let length = path.length; length > 0; length--) {
      const node = document.getIn(path.slice(0, length), true) as { range?: [number] } | undefined;
      if (node?.range) return counter.linePos(node.range[0]).line;
    }
    return undefined;
  }

  return {
    at(path: Path, rule: string): string {
      const line = lineOf(path);
      return `${path.join('.') || 'seed'}${line === undefined ? '' : ` (line ${line})`}: ${rule}`;
    },
    ofSchema(error: ErrorObject, above: Path = []): string {
      const path = [...above, ...pathOf(error)];
      if (error.keyword === 'additionalProperties')
        return this.at([...path, error.params.additionalProperty as string], 'unknown member');
      return this.at(path, describeError(error).error);
    },
  };
}

type Problems = ReturnType<typeof createProblems>;

/** @throws {SeedError} if the text is neither JSON nor YAML, or breaks a rule of the schema */
function readSeed(text: string, problems: Problems): Seed {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    try {
      document = parse(text) ?? {};
    } catch (error) {
      if (!(error instanceof YAMLParseError)) throw error;
      throw new SeedError([`The seed is neither valid JSON nor valid YAML: ${error.message.split('\n')[0]}`]);
    }
  }
  if (!isSeed(document)) throw new SeedError([problems.ofSchema(isSeed.errors![0]!)]);
  for (const [index, { source }] of (document.integrations ?? []).entries()) {
    const isSource = areSources[(source as { type: string }).type]!;
    if (!isSource(source))
      throw new SeedError([problems.ofSchema(isSource.errors![0]!, ['integrations', index, 'source'])]);
  }
  return document;
}

/** An object for an array of a request, and its position in the seed. */
interface SeedObject {
  object: Record<string, Json>;
  path: Path;
}

/** Maximum objects per array of a request: of /users/track, and of other operations. */
const TRACKED = 75;
const ELEMENTS = 50;

const identifiers = ['external_id', 'user_alias', 'email', 'phone'];

const identifierOf = (user: Record<string, Json>): Record<string, Json> =>
  Object.fromEntries(Object.entries(user).filter(([key]) => identifiers.includes(key)));

/**
 * Applies a seed in this order: groups, users, aliases, events, purchases, states, preference centers, segments,
 * integrations.
 * @returns the number of objects of each kind, and the ids of definitions by name
 * @throws {SeedError} at the first part that was refused; earlier parts have taken effect
 */
export async function applySeed(text: string, target: SeedTarget): Promise<Record<string, Json>> {
  const problems = createProblems(text);
  const seed = readSeed(text, problems);
  const { users = [], preference_centers: centers = [] } = seed;
  const time = nowDate().toISOString();

  async function post(path: string, arrays: Record<string, SeedObject[]>, size: number): Promise<void> {
    const longest = Math.max(...Object.values(arrays).map(({ length }) => length));
    for (let from = 0; from < longest; from += size) {
      const parts = Object.entries(arrays)
        .map(([array, all]) => [array, all.slice(from, from + size)] as const)
        .filter(([, part]) => part.length > 0);
      const body = Object.fromEntries(
        parts.map(([array, part]) => [array, part.map(({ object }) => object)]),
      );
      const answer = await target.send('POST', path, body);
      refuseAnswer(answer, Object.fromEntries(parts), parts[0]![1][0]!.path);
    }
  }

  /** @throws {SeedError} for an answer with errors, with the position of each in the seed */
  function refuseAnswer({ status, body }: ApiAnswer, sent: Record<string, SeedObject[]>, path: Path): void {
    const errors = Array.isArray(body.errors) ? body.errors.filter(isRecord) : [];
    if (status < 300 && errors.length === 0) return;
    const named = errors.slice(0, MAX_PROBLEMS).map((one) => {
      const { input_array, index, type, message } = one as Record<string, string & number>;
      return problems.at(sent[input_array!]?.[index!]?.path ?? path, type ?? message ?? JSON.stringify(one));
    });
    throw new SeedError(named.length > 0 ? named : [problems.at(path, reasonOf(status, body))]);
  }

  async function define(
    list: 'subscription_groups' | 'segments' | 'integrations',
    create: (definition: Definition) => Promise<string>,
  ): Promise<Record<string, string>> {
    const made: Record<string, string> = {};
    for (const [index, definition] of (seed[list] ?? []).entries())
      made[definition.name] = await create(definition).catch((error: Error) => {
        throw new SeedError([problems.at([list, index], error.message)]);
      });
    return made;
  }

  const groups = await define('subscription_groups', target.definitions.subscriptionGroup);
  const profiles: SeedObject[] = users.map((user, index) => ({
    object: { ...(user.attributes as Record<string, Json>), ...identifierOf(user) },
    path: ['users', index, ...('attributes' in user ? ['attributes'] : [])],
  }));
  await post('/users/track', { attributes: profiles }, TRACKED);
  const aliases = users.flatMap((user, index) =>
    ((user.aliases as Record<string, Json>[]) ?? []).map((alias, aliasIndex) => ({
      object: { ...alias, external_id: user.external_id! },
      path: ['users', index, 'aliases', aliasIndex],
    })),
  );
  await post('/users/alias/new', { user_aliases: aliases }, ELEMENTS);

  /** Events or purchases, both under users and at the top level. */
  const activity = (kind: 'events' | 'purchases'): SeedObject[] => [
    ...users.flatMap((user, index) =>
      ((user[kind] as Record<string, Json>[]) ?? []).map((one, itemIndex) => ({
        object: { time, ...one, ...identifierOf(user) },
        path: ['users', index, kind, itemIndex],
      })),
    ),
    ...(seed[kind] ?? []).map((one, index) => ({ object: { time, ...one }, path: [kind, index] })),
  ];
  const [events, purchases] = [activity('events'), activity('purchases')];
  await post('/users/track', { events, purchases }, TRACKED);

  const states = users.flatMap((user, index) =>
    Object.entries((user.subscription_groups as Record<string, string>) ?? {}).map(([group, state]) => ({
      object: {
        subscription_group_id: groups[group] ?? group,
        subscription_state: state,
        external_ids: [user.external_id!],
      },
      path: ['users', index, 'subscription_groups', group],
    })),
  );
  await post('/v2/subscription/status/set', { subscription_groups: states }, ELEMENTS);

  const centerIds: Record<string, Json> = {};
  for (const [index, body] of centers.entries()) {
    const answer = await target.send('POST', '/preference_center/v1', body);
    refuseAnswer(answer, {}, ['preference_centers', index]);
    centerIds[String(body.name)] = answer.body.preference_center_api_id!;
  }
  return {
    ...{ users: users.length, aliases: aliases.length, events: events.length, purchases: purchases.length },
    subscription_groups: groups,
    preference_centers: centerIds,
    segments: await define('segments', target.definitions.segment),
    integrations: await define('integrations', target.definitions.integration),
  };
}

const reasonOf = (status: number, { message, detail }: Record<string, Json>): string =>
  [`${message ?? `status ${status}`}`, ...(detail ? [`(${detail})`] : [])].join(' ');
