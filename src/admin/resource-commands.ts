import { readFileSync, statSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { type Config, readConfig } from '../platform/config.ts';
import { describeFailure, grouped } from '../platform/format.ts';
import { reachable } from '../platform/lifecycle.ts';
import type { Field, Fields, SecretSource } from '../resources/fields.ts';
import { InvalidValue } from '../resources/refusal.ts';
import {
  type Action,
  type Context,
  type Creation,
  cutPage,
  type NamedResource,
  type Outcome,
  type Owner,
  type PartOfList,
  type Resource,
  rowOf,
} from '../resources/resource.ts';
import { addNoun, addVerb, PENSTOCK, parseId, parserOf, Refusal } from './command.ts';
import {
  commandLine,
  findCompany,
  findWorkspace,
  type Installation,
  withInstallation,
} from './installation.ts';
import { addList, printPage, printRow } from './output.ts';
import { addSecretOptions, namesSecret, readSecret, type SecretOptions } from './secret-options.ts';

type Options = Record<string, unknown> & { json?: boolean; workspace?: string; company?: string };

const owners = { workspace: findWorkspace, company: findCompany };

/** Adds the noun of a resource, with a verb for the list and for each action of the resource. */
export function addResource<One extends { id: string }>(program: Command, resource: Resource<One>): Command {
  const { noun, sentence, example } = resource;
  return addVerbs(addNoun(program, noun, { sentence, example }), resource);
}

/** Adds the verbs of a resource to its noun. */
export function addVerbs<One extends { id: string }>(command: Command, resource: Resource<One>): Command {
  const { creation, ownerActions = [] } = resource;
  if (creation) addOwnerVerb(command, resource, creation);
  addListing(command, resource);
  const { showing } = resource;
  if (showing)
    addNamed(command, resource, { verb: 'show', ...showing }).action(
      run(resource, async (context, one, { json }) => printRow(json, rowOf(resource, await one(context)))),
    );
  for (const action of resource.actions.filter(({ isConsoleOnly }) => !isConsoleOnly))
    addAction(command, resource, action);
  for (const one of ownerActions.filter(({ isConsoleOnly }) => !isConsoleOnly))
    addOwnerVerb(command, resource, one);
  return command;
}

/** Adds the verb of an action. */
export function addAction<One extends { id: string }>(
  command: Command,
  resource: NamedResource<One>,
  action: Action<One>,
): void {
  addFields(addNamed(command, resource, action), action.fields).action(
    run(resource, async (context, one, options) => {
      const values = readFields(action.fields, options);
      print(resource, await action.run(context, { one: await one(context), values }), options.json);
    }),
  );
}

export const contextOf = (installation: Installation): Context => ({
  ...{ database: installation.database, config: installation.config, actor: commandLine() },
  consoleUrl: consoleUrlOf(installation.config),
  databaseUrl: () => installation.databaseUrl,
  async withQueue(work) {
    // Loaded only by the verbs that use the queue, for a fast start of the others.
    const { withQueue } = await import('./queue.ts');
    return withQueue(installation, work);
  },
  async withRenderer(work) {
    const { createRenderer } = await import('../preferences/renderer.ts');
    const renderer = createRenderer({ maxProcesses: 1 });
    try {
      return await work(renderer);
    } finally {
      await renderer.stop();
    }
  },
  requirePermit() {},
  hasPermit: () => true,
  async enqueue(request) {
    const { enqueueInQueue } = await import('./queue.ts');
    return enqueueInQueue(installation, request);
  },
});

/** Returns the base URL of the console as the settings describe it. */
function consoleUrlOf({ BOARD_HOST, BOARD_PORT, BOARD_URL }: Config): string {
  if (BOARD_URL) return BOARD_URL.replace(/\/$/, '');
  return `http://${reachable(BOARD_HOST)}:${BOARD_PORT}`;
}

/** The parts of a description that a command about an owner needs. */
type OwnedResource<One extends { id: string }> = NamedResource<One> & Pick<Resource<One>, 'many' | 'nouns'>;

/** Adds a verb that acts on a workspace, a company or the installation. */
export function addOwnerVerb<One extends { id: string }>(
  command: Command,
  resource: OwnedResource<One>,
  creation: Creation<One>,
): void {
  const { scope = resource.scope } = creation;
  const verb = addVerb(command, creation.verb, creation);
  if (scope !== 'installation') verb.requiredOption(`--${scope} <${scope}>`, `name or id of the ${scope}`);
  addFields(verb, creation.fields).action(async (options: Options) => {
    await withInstallation(async (installation) => {
      const values = readFields(creation.fields, options);
      const owner = await ownerOf({ scope }, installation, options);
      const outcome = await creation.run(contextOf(installation), { owner, values });
      if (outcome.rows) printAll(resource, outcome.rows, options.json);
      else print(resource, outcome, options.json);
    });
  });
}

async function ownerOf(
  { scope }: Pick<Resource, 'scope'>,
  { database }: Installation,
  options: Options,
): Promise<Owner> {
  const named = scope === 'installation' ? undefined : options[scope];
  return named === undefined ? { id: '', name: '' } : owners[scope as 'workspace'](database, named);
}

function addListing<One extends { id: string }>(command: Command, resource: Resource<One>): void {
  const { scope, isOwner, naming, many, one, nouns, listing, filters = {} } = resource;
  if (listing.isWhole) {
    addWholeListing(command, resource);
    return;
  }
  addList<One>(command, {
    ...{ one, many, ...(nouns !== undefined && { nouns }), ...listing },
    owner: scope === 'installation' || isOwner ? undefined : scope,
    ...{ required: naming.isWithin, isNewestFirst: listing.isNewestFirst },
    addOptions: (verb) => void addFields(verb, filters),
    list: (installation, page, options) =>
      resource.list(contextOf(installation), { ...page, filters: readFields(filters, options) }),
    rowOf: (item) => rowOf(resource, item, 'rows'),
    cellsOf: (item) => rowOf(resource, item, 'table'),
  });
}

/** Adds the verb `list` of a resource that is printed at once. */
function addWholeListing<One extends { id: string }>(command: Command, resource: Resource<One>): void {
  const { scope, listing, filters = {} } = resource;
  const { withoutOwner } = listing;
  const verb = addVerb(command, 'list', listing);
  const option = `--${scope} <${scope}>`;
  if (withoutOwner) verb.option(option, `name or id of the ${scope}`);
  else verb.requiredOption(option, `name or id of the ${scope}`);
  addFields(verb, filters).action(async (options: Options) => {
    if (withoutOwner && options[scope] === undefined)
      return printAll(resource, withoutOwner(readConfig()), options.json);
    await withInstallation(async (installation) => {
      const { id } = await ownerOf(resource, installation, options);
      const page = { owners: [id], filters: readFields(filters, options), limit: Number.MAX_SAFE_INTEGER };
      printAll(resource, await resource.list(contextOf(installation), page), options.json);
    });
  });
}

function printAll<One extends { id: string }>(
  resource: OwnedResource<One>,
  listed: One[] | PartOfList<One>,
  json: boolean | undefined,
): void {
  const { many, nouns = many } = resource;
  const { rows, ...rest } = cutPage(listed, Number.MAX_SAFE_INTEGER);
  const output = json ? 'rows' : 'table';
  printPage(json, nouns, { rows: rows.map((one) => rowOf(resource, one, output)), ...rest });
}

/** Adds a verb that acts on one record. */
export function addNamed<One extends { id: string }>(
  command: Command,
  { naming, scope }: NamedResource<One>,
  verb: Pick<Action<One>, 'verb' | 'sentence' | 'example'>,
): Command {
  const { argument, help, isWithin, options = {} } = naming;
  const added = addVerb(command, verb.verb, verb);
  if (argument?.slice(1, -1) === 'id') added.argument(argument, help!, parseId);
  else if (argument !== undefined) added.argument(argument, help!);
  if (isWithin) added.requiredOption(`--${scope} <${scope}>`, `name or id of the ${scope}`);
  return addFields(added, options);
}

type Work<One> = (
  context: Context,
  one: (context: Context) => Promise<One>,
  options: Options,
) => Promise<void>;

/** Returns an action that finds the named record and passes it to `work`. It rejects with a Refusal if none matches. */
export function run<One extends { id: string }>(resource: NamedResource<One>, work: Work<One>) {
  const { naming, one, noun, scope } = resource;
  // Commander calls an action with the argument, if the verb has one, the options and the command.
  return async (...given: unknown[]) => {
    const text = given.length > 2 ? (given[0] as string | undefined) : undefined;
    // A noun that is a command itself takes the options that it has as well.
    const options = (given.at(-1) as Command).optsWithGlobals<Options>();
    await withInstallation(async (installation) => {
      const find = async (context: Context) => {
        const owner = naming.isWithin ? await ownerOf(resource, installation, options) : undefined;
        const named = { text, options: readFields(naming.options ?? {}, options), owner };
        const match = await (naming.find?.(context, named) ??
          resource.find?.(context, text ?? '', undefined));
        if (match !== undefined) return match;
        const value = text ?? Object.values(named.options).find((option) => option !== undefined);
        const by = naming.by?.(named) ?? 'the id';
        throw new Refusal(
          naming.isWithin
            ? `the ${scope} has no ${one} '${value}'${'list' in resource ? `; see ${PENSTOCK} ${noun} list` : ''}`
            : `no ${one} has ${by} '${value}'; see ${PENSTOCK} ${noun} list`,
        );
      };
      await work(contextOf(installation), find, options);
    });
  };
}

function print<One extends { id: string }>(
  resource: NamedResource<One>,
  { one, secret, more, row, note, failure }: Outcome<One>,
  json: boolean | undefined,
): void {
  const shown = row ?? (one === undefined ? {} : rowOf(resource, one));
  printRow(json, { ...(secret && { [secret.name]: secret.value }), ...shown, ...more }, note);
  if (failure !== undefined) throw new Refusal(failure);
}

const flagOf = (key: string) => `--${key.replaceAll('_', '-')}`;

/** Returns the property name that Commander uses for the option of a field. */
const keptAs = (key: string) => key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** Adds an option for each field. */
function addFields(command: Command, fields: Fields): Command {
  for (const [key, field] of Object.entries(fields)) addField(command, key, field);
  return command;
}

function addField(command: Command, key: string, field: Field<unknown>): void {
  const { help, value, control, required, fallback } = field;
  if (control.kind === 'secret') {
    if (control.fileOnly) command.option('--secret-file <path>', help);
    else
      addSecretOptions(command, {
        variable: `environment variable with the ${help}`,
        file: 'file with the secret; - reads standard input',
      });
    return;
  }
  const option = new Option(control.kind === 'switch' ? flagOf(key) : `${flagOf(key)} <${value}>`, help);
  if (control.kind === 'area') {
    option.description = `file with ${help}; - reads standard input`;
    option.argParser(parserOf((file) => field.read(readText(file, control.maxLength))));
  } else if (control.kind === 'choice') option.choices(control.choices as string[]);
  else if (control.kind !== 'switch') option.argParser(parserOf(field.read));
  if (required) option.makeOptionMandatory();
  // The help text already describes the default of an empty list.
  if (fallback !== undefined && control.kind !== 'switch' && !Array.isArray(fallback))
    option.default(fallback);
  command.addOption(option);
}

/** Maximum number of bytes of a character in UTF-8. */
const MAX_CHARACTER_BYTES = 4;

/**
 * Reads a text from a file, or from standard input if the name is `-`.
 * @throws {InvalidValue} if the file cannot be read or is too large
 */
function readText(file: string, maxLength: number): string {
  const maxBytes = maxLength * MAX_CHARACTER_BYTES;
  const tooLarge = new InvalidValue(`The file may have at most ${grouped(maxLength)} characters.`);
  try {
    if (file !== '-' && statSync(file).size > maxBytes) throw tooLarge;
    const text = readFileSync(file === '-' ? process.stdin.fd : file);
    if (text.length > maxBytes) throw tooLarge;
    return new TextDecoder('utf-8', { fatal: true }).decode(text);
  } catch (error) {
    if (error instanceof InvalidValue) throw error;
    if (error instanceof TypeError) throw new InvalidValue(`The file ${file} is not text in UTF-8.`);
    throw new InvalidValue(`The file ${file} cannot be read: ${describeFailure(error)}.`);
  }
}

/** Reads the values of the fields from the options; an omitted option has its default. */
function readFields(fields: Fields, options: Options): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([key, { control, fallback }]) => {
      if (control.kind === 'secret') return [key, secretOf(options as SecretOptions)];
      return [key, options[keptAs(key)] ?? fallback];
    }),
  );
}

function secretOf(options: SecretOptions): SecretSource {
  return { isGiven: namesSecret(options), read: (what) => readSecret(options, what) };
}
