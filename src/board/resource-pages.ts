import { nowDate } from '../platform/clock.ts';
import { grouped } from '../platform/format.ts';
import { type Html, html, type Part } from '../platform/html.ts';
import { presentTrace } from '../platform/tracing.ts';
import { findDatabaseUrl } from '../processes/dependencies.ts';
import type { Json } from '../profile/json.ts';
import { isUuid } from '../profile/values.ts';
import { layoutOf } from '../queue/lanes.ts';
import { envelopesOf } from '../queue/pack.ts';
import type { Fields } from '../resources/fields.ts';
import { Refusal } from '../resources/refusal.ts';
import {
  type Action,
  type Column,
  type Context,
  type Creation,
  cutPage,
  type Outcome,
  type Owner,
  type Resource,
} from '../resources/resource.ts';
import { isRight } from '../resources/rights.ts';
import { isPermitted } from './access.ts';
import {
  chosenWorkspace,
  FORM_BYTES,
  type Page,
  PageError,
  type PageServices,
  type Reply,
  requirePermit,
  type Visit,
} from './console.ts';
import {
  badge,
  duration,
  empty,
  facts,
  type Column as Heading,
  isPermittedIn,
  moment,
  nextPage,
  pathWith,
  table,
  uuid,
  workspaceChoice,
} from './layout.ts';
import { chosenCompany } from './pages/company.ts';
import { filterFields, formFields, formProblem, problemsOf, readForm, type Sent } from './resource-form.ts';

type ResourceVisit = Visit<PageServices>;

/** Number of entries on a list page, if the description has none. */
const PAGE = 50;

/** A list column that only the console has. */
export interface ExtraColumn<One> {
  title: string;
  /** Whether the column has numbers, which are right-aligned. */
  isNumber?: boolean;
  cell(one: One): Part;
}

/** Additions to the pages of a resource. */
export interface Extras<One> {
  /** Section below the facts on the page of one resource. */
  section?(visit: ResourceVisit, one: One): Promise<Part>;
  /** Search of the list, in the form that selects the workspace. */
  search?: {
    /** Query parameters, which the link to older entries keeps. */
    parameters: readonly string[];
    fields(visit: ResourceVisit, owner: Owner | undefined): Part | Promise<Part>;
    /** Section below the form. */
    belowForm(visit: ResourceVisit): Part;
    /** Returns the address of the page that the search text names. The list is then not shown. */
    opens?(visit: ResourceVisit): Promise<string | undefined>;
    /** Whether the search text breaks its rule, so that the answer is 400. */
    isInvalid?(visit: ResourceVisit): boolean | Promise<boolean>;
  };
  /** List columns that only the console has. @param rows the listed resources */
  columns?(visit: ResourceVisit, owner: Owner | undefined, rows: readonly One[]): Promise<ExtraColumn<One>[]>;
  /** Section below the list. */
  below?(visit: ResourceVisit, owner: Owner | undefined): Promise<Part>;
}

/** Renders the description of a resource as pages: a list with a form to create one, and a page for each with its actions. */
export function resourcePages<One extends { id: string }>(
  resource: Resource<One>,
  extras: Extras<One> = {},
): Page<PageServices>[] {
  return new Renderer(resource, extras).pages();
}

/** Renders the resources of one owner as a table with the buttons that the viewer may press, for another page. */
export async function resourceTable<One extends { id: string }>(
  resource: Resource<One>,
  visit: ResourceVisit,
  owner: Owner,
): Promise<Html> {
  const listed = await resource.list(contextOf(visit), {
    ...{ owners: [owner.id], newestFirst: true, limit: PAGE },
  });
  return new Renderer(resource, {}).table(visit, cutPage(listed, PAGE).rows);
}

/** Renders rows as a table by their columns. @param options.first column before the described ones */
export function described<One>(
  title: string,
  columns: readonly Column<One>[],
  { rows, first }: { rows: readonly One[]; first?: ExtraColumn<One> },
): Html {
  const listed = columns.filter((column) => isShownIn(column, 'list'));
  return table(
    title,
    [...(first ? [first.title] : []), ...listed.map(headingOf)],
    rows.map((one) => [...(first ? [first.cell(one)] : []), ...listed.map((column) => cellOf(column, one))]),
  );
}

/** Renders one row as names and values by its columns. */
export const describedFacts = <One>(columns: readonly Column<One>[], one: One): Html =>
  facts(
    columns
      .filter((column) => isShownIn(column, 'page'))
      .map((column) => [column.title!, cellOf(column, one)]),
  );

const headingOf = <One>({ title: name = '', kind }: Column<One>): Heading =>
  kind === 'number' ? { name, number: true as const } : name;

/** A form whose values were rejected: the verb of its action, the values and their errors. */
interface Tried {
  verb: string;
  sent: Sent;
}

/** The filters of a list in the query. */
interface Filtered {
  values: Record<string, unknown>;
  isSet: boolean;
  isInvalid: boolean;
  sent: Sent;
}

class Renderer<One extends { id: string }> {
  readonly #resource: Resource<One>;
  readonly #extras: Extras<One>;
  readonly #path: string;

  constructor(resource: Resource<One>, extras: Extras<One>) {
    this.#resource = resource;
    this.#extras = extras;
    this.#path = `/${resource.path ?? resource.noun}`;
  }

  pages(): Page<PageServices>[] {
    const { permit, creation, ownerActions = [], title, actions } = this.#resource;
    const one = `${this.#path}/:id`;
    return [
      {
        ...{ method: 'get', path: this.#path, right: permit },
        handle: async (visit) => {
          const entered = this.#entered(visit);
          const { search } = this.#extras;
          const to = await search?.opens?.(entered);
          if (to !== undefined) return { to };
          const filtered = this.#filtered(entered);
          return {
            ...{ title, body: await this.#list(entered, { filtered }) },
            ...this.#noticeOf(visit, { isList: true }),
            ...((filtered.isInvalid || (await search?.isInvalid?.(entered))) && { status: 400 }),
          };
        },
      },
      ...(creation || ownerActions.length > 0
        ? [
            {
              ...{ method: 'post' as const, path: this.#path, right: permit },
              maxBytes: formBytes([...(creation ? [creation] : []), ...ownerActions]),
              handle: (visit: ResourceVisit) => this.#create(this.#entered(visit)),
            },
          ]
        : []),
      ...(this.#resource.isListOnly ? [] : [this.#page(one)]),
      ...(actions.length > 0
        ? [
            {
              ...{ method: 'post' as const, path: one, right: permit },
              maxBytes: formBytes(actions),
              handle: (visit: ResourceVisit) => this.#act(this.#entered(visit)),
            },
          ]
        : []),
    ];
  }

  /** Returns the page of a single resource. */
  #page(path: string): Page<PageServices> {
    const { permit, nameOf, refreshSeconds } = this.#resource;
    return {
      ...{ method: 'get', path, right: permit },
      handle: async (given) => {
        const visit = this.#entered(given);
        const one = await this.#find(visit);
        const refresh = refreshSeconds?.(one);
        return {
          ...{
            title: nameOf(one),
            body: await this.#show(visit, one),
            ...this.#noticeOf(visit, { isList: false }),
          },
          ...(refresh !== undefined && { refresh }),
        };
      },
    };
  }

  /** Offers the workspaces whose users the viewer may see, if the permit of the resource is not a workspace right. */
  #entered(visit: ResourceVisit): ResourceVisit {
    const { scope, permit } = this.#resource;
    if (scope !== 'workspace' || isRight(permit)) return visit;
    const { viewer } = visit;
    return {
      ...visit,
      workspaces: viewer.workspacesWith('users'),
      findWorkspace: (idOrName) => viewer.find('users', idOrName),
    };
  }

  /** Returns the notice for the action that redirected here. An action on a list can have the verb of one on an entry. */
  #noticeOf(
    { query, services: { config } }: ResourceVisit,
    { isList }: { isList: boolean },
  ): { notice?: string } {
    const { creation, ownerActions = [], actions } = this.#resource;
    const all = isList ? [creation, ...ownerActions, ...actions] : [creation, ...actions, ...ownerActions];
    const done = all.find((one) => one?.verb === query('done'));
    if (!done) return {};
    return { notice: typeof done.done === 'string' ? done.done : done.done(config) };
  }

  /** Returns the owners whose entries are listed: one selected owner, or all that the viewer may see. */
  async #owners(
    visit: ResourceVisit,
  ): Promise<{ chosen: Owner | undefined; choice: Part; ids: string[] | undefined }> {
    const { scope, isOfOne = false, isOwner, filters = {} } = this.#resource;
    const { workspaces, viewer, query } = visit;
    const isFiltered = Object.keys(filters).length > 0;
    const formOf = (chooser: Part, isSearch: boolean) =>
      (chooser || isSearch) &&
      html`<form class="row" method="get" action="${this.#path}">${chooser}<button class="${isSearch && 'main'}">Show</button></form>`;
    if (scope === 'installation' || isOwner) {
      // A viewer with every right sees all workspaces, also beyond those that are loaded.
      const ids = isOwner && !viewer.full ? workspaces.map(({ id }) => id) : undefined;
      return {
        chosen: undefined,
        choice: formOf(isFiltered && filterFields(filters, { query }), isFiltered),
        ids,
      };
    }
    if (scope === 'company') {
      const { company, field } = await chosenCompany(visit);
      return {
        ...{ chosen: company, ids: [company.id] },
        choice: formOf(
          field || isFiltered ? html`${field}${filterFields(filters, { query })}` : undefined,
          isFiltered,
        ),
      };
    }
    const chosen = (await chosenWorkspace(visit)) ?? (isOfOne ? workspaces[0] : undefined);
    const field = workspaceChoice(workspaces, chosen, { mayBeAll: !isOfOne });
    const choices = chosen && (await this.#resource.filterChoices?.(contextOf(visit), chosen));
    const fields = filterFields(filters, { query, choices });
    const search = await this.#extras.search?.fields(visit, chosen);
    const isSearch = Boolean(search) || isFiltered;
    const choice = formOf(field || isSearch ? html`${field}${fields}${search}` : undefined, isSearch);
    return { chosen, choice, ids: (chosen ? [chosen] : workspaces).map(({ id }) => id) };
  }

  async #list(
    visit: ResourceVisit,
    { filtered = this.#filtered(visit), tried }: { filtered?: Filtered; tried?: Tried } = {},
  ): Promise<Html> {
    const {
      title,
      lead,
      many,
      creation,
      scope,
      isOwner,
      filters = {},
      listing,
      empty: hint,
    } = this.#resource;
    const { query } = visit;
    const { isId: isCursor = isUuid } = this.#resource;
    const { chosen, choice, ids } = await this.#owners(visit);
    const { pageSize = PAGE, nextText } = listing;
    const listed = await this.#resource.list(contextOf(visit), {
      owners: ids,
      ...(isOwner && { companyId: visit.viewer.companyId }),
      filters: filtered.values,
      before: isCursor(query('before')) ? query('before') : undefined,
      newestFirst: true,
      limit: pageSize + 1,
    });
    const { rows: shown, next, note } = cutPage(listed, pageSize);
    const makers = creation ? this.#makers(visit, creation, chosen) : [];
    const { search } = this.#extras;
    const [more, below] = await Promise.all([
      this.#extras.columns?.(visit, chosen, shown) ?? [],
      this.#extras.below?.(visit, chosen),
    ]);
    const kept = {
      ...(chosen && { [scope]: chosen.id }),
      ...Object.fromEntries(
        [...Object.keys(filters), ...(search?.parameters ?? [])].map((name) => [name, query(name)]),
      ),
    };
    const sent = creation && tried?.verb === creation.verb ? tried.sent : undefined;
    const linked: Record<string, string> = Object.fromEntries(
      (creation?.linked ?? []).map((name) => [name, query(name)] as const).filter(([, text]) => text !== ''),
    );
    const maker = chosen ?? (makers.length === 1 ? makers[0] : undefined);
    const suggestions =
      makers.length > 0 && maker ? await creation?.suggestions?.(contextOf(visit), maker) : undefined;
    return html`<h1>${title}</h1>
<p class="lead">${lead}</p>
${choice}${formProblem(filtered.sent)}${search?.belowForm(visit)}
${
  shown.length > 0
    ? this.table(visit, shown, more)
    : next !== null
      ? empty(`No ${many} found so far`, `No entry that this page read matches. “Older” continues.`)
      : filtered.isSet
        ? empty(`No ${many} found`, html`Change the filter, or see <a href="${this.#path}">all</a>.`)
        : query('before') === ''
          ? empty(`No ${many} yet`, makers.length > 0 ? `Create one below. ${hint}` : hint)
          : empty(`No older ${many}`, html`<a href="${pathWith(this.#path, kept)}">The newest ones</a>`)
}
${next !== null && nextPage(this.#path, { ...kept, before: next }, nextText)}
${note !== undefined && html`<p class="faint pager">${note}</p>`}
${below}
${this.#ownerForms(visit, chosen, tried)}
${creation && makers.length > 0 && this.#creationForm(creation, { makers, chosen, sent, suggestions, linked, warning: creation.warning?.(visit.services), isOpen: sent !== undefined || shown.length === 0 || Object.keys(linked).length > 0 })}`;
  }

  /** Reads the filters of the list from the query. */
  #filtered({ query }: ResourceVisit): Filtered {
    const { filters = {} } = this.#resource;
    const fields = (name: string) => (query(name) === '' ? [] : [query(name)]);
    const { values, given, problems } = readForm({ fields }, filters);
    const [problem] = Object.entries(problems).map(([name, text]) => `${filters[name]!.label}: ${text}`);
    const isSet = Object.values(values).some((value) => value !== undefined);
    const isInvalid = problem !== undefined;
    return { values, isSet, isInvalid, sent: { given, problems: isInvalid ? { '': problem } : {} } };
  }

  /** Renders resources as a table, with the buttons of the list that the viewer may press. */
  table(visit: ResourceVisit, all: readonly One[], more: readonly ExtraColumn<One>[] = []): Html {
    const { title, nameTitle = 'Name', columns, scope, isOfOne, actions, nameOf } = this.#resource;
    const several = scope === 'workspace' && visit.workspaces.length > 1 && !isOfOne;
    const listed = columns.filter(
      (column) =>
        isShownIn(column, 'list') && (column.title !== 'Workspace' || several || scope === 'company'),
    );
    const buttons = actions.filter(({ isInList }) => isInList);
    const offered = all.map((one) => buttons.filter((action) => this.#may(visit, action, one)));
    const hasButtons = offered.some(({ length }) => length > 0);
    const hasPages = !this.#resource.isListOnly || this.#resource.pathOf !== undefined;
    const rows = all.map((one, index) => [
      hasPages ? linked(nameOf(one), this.#pathOf(visit, one)) : nameOf(one),
      ...listed.map((column) => cellOf(column, one, this.#mayFollow(visit, column, one))),
      ...more.map(({ cell }) => cell(one)),
      ...(hasButtons
        ? [
            html`<div class="buttons">${offered[index]!.map((action) => this.#listButton(visit, action, one))}</div>`,
          ]
        : []),
    ]);
    const headings: Heading[] = [
      nameTitle,
      ...listed.map(headingOf),
      ...more.map(({ title: name, isNumber }) => (isNumber ? { name, number: true as const } : name)),
      ...(hasButtons ? ['Actions'] : []),
    ];
    return table(title, headings, rows);
  }

  #mayFollow({ viewer }: ResourceVisit, { linkPermit }: Column<One>, one: One): boolean {
    return linkPermit === undefined || isPermittedIn(viewer, linkPermit, this.#resource.ownerOf(one));
  }

  /** Renders the button of an action without a form, or a link to the form of the action. */
  #listButton(visit: ResourceVisit, action: Action<One>, one: One): Html {
    if (isButton(action)) return this.#button(visit, action, one);
    return html`<a class="button" href="${this.#pathOf(visit, one)}#${action.verb}" aria-label="${action.button} ${this.#resource.nameOf(one)}">${action.button}</a>`;
  }

  /** Returns the owners for which the viewer may create an entry. */
  #makers(
    { viewer, workspaces }: ResourceVisit,
    { permit, scope = this.#resource.scope }: Creation<One>,
    chosen: Owner | undefined,
  ): Owner[] {
    if (scope === 'workspace') {
      const among = chosen ? [chosen] : workspaces;
      return among.filter(({ id }) => isPermitted(viewer, permit, id));
    }
    return isPermitted(viewer, permit) ? [chosen ?? { id: '', name: '' }] : [];
  }

  #ownerForms(visit: ResourceVisit, chosen: Owner | undefined, tried: Tried | undefined): Part {
    const { ownerActions = [], scope } = this.#resource;
    const offered = ownerActions.filter(({ permit }) => isPermitted(visit.viewer, permit, chosen?.id));
    return offered.map(({ verb, button, lead, fields, scope: own = scope }) => {
      if (own !== 'installation' && !chosen) return undefined;
      const sent = verb === tried?.verb ? tried.sent : undefined;
      return html`<details class="card create" id="${verb}"${sent && html` open`}><summary>${button}</summary>
${lead !== undefined && html`<p class="lead">${lead}</p>`}
<form class="stack" method="post" action="${this.#path}#${verb}">${formProblem(sent)}<input type="hidden" name="action" value="${verb}">${own !== 'installation' && html`<input type="hidden" name="${scope}" value="${chosen?.id}">`}
${formFields(fields, { id: verb, sent })}<p class="actions"><button>${button}</button></p></form></details>`;
    });
  }

  #creationForm(
    creation: Creation<One>,
    {
      makers,
      chosen,
      sent,
      suggestions,
      linked,
      warning,
      isOpen,
    }: {
      makers: Owner[];
      chosen: Owner | undefined;
      sent: Sent | undefined;
      suggestions: Record<string, string[]> | undefined;
      linked: Record<string, string>;
      warning: string | undefined;
      isOpen: boolean;
    },
  ): Html {
    const { scope = this.#resource.scope } = creation;
    const wanted = makers.find(({ id }) => id === sent?.given[scope]?.[0]) ?? chosen;
    const owner =
      makers.length === 1
        ? scope !== 'installation' && html`<input type="hidden" name="${scope}" value="${makers[0]!.id}">`
        : workspaceChoice(makers, wanted, { mayBeAll: false, list: 'create-workspaces' });
    return html`<details class="card create" id="create"${isOpen && html` open`}><summary>${creation.button}</summary>
${creation.lead !== undefined && html`<p class="lead">${creation.lead}</p>`}
${warning !== undefined && html`<p class="banner warn" role="status">${warning}</p>`}
<form class="stack" method="post" action="${this.#path}#create" aria-label="${creation.button}">${formProblem(sent)}${owner}
${formFields(creation.fields, { id: 'create', sent, suggestions, filled: linked })}
<p class="actions"><button class="main">${creation.submit ?? creation.button}</button></p></form></details>`;
  }

  async #create(visit: ResourceVisit): Promise<Reply> {
    const { title, creation: main, ownerActions = [] } = this.#resource;
    const scope = main?.scope ?? this.#resource.scope;
    const owner = await this.#ownerOfNew(visit, scope);
    const all = main ? [main, ...ownerActions] : ownerActions;
    // A form without `action` creates.
    const creation = all.find(({ verb }) => verb === (visit.field('action') || main?.verb));
    // A viewer who may do none of the actions gets 403, also for an unknown action.
    const open = all.find(({ permit }) => isPermitted(visit.viewer, permit, owner.id));
    requirePermit(visit, (creation ?? open ?? all[0]!).permit, owner.id);
    if (!creation) throw new PageError(400, `'action' must be ${all.map(({ verb }) => verb).join(' or ')}.`);
    const { values, ...sent } = readForm(visit, creation.fields);
    const again = async (problems: Sent['problems'], status: 400 | 409 | 503 = 400) => ({
      ...{ title, status },
      body: await this.#list(withQuery(visit, scope, owner.id), {
        tried: { verb: creation.verb, sent: { given: { ...sent.given, [scope]: [owner.id] }, problems } },
      }),
    });
    if (Object.keys(sent.problems).length > 0) return again(sent.problems);
    try {
      const outcome = await creation.run(contextOf(visit), { owner, values });
      const { one, secret } = outcome;
      if (secret) return { title, body: this.#secretPage(visit, 'Created', outcome) };
      if (!one) return { to: pathWith(this.#path, { [scope]: owner.id, done: creation.verb }) };
      return { to: this.#pathOf(visit, one, { done: creation.verb }) };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return again(problemsOf(error, creation.fields), error.status);
    }
  }

  /**
   * Returns the owner for a new entry.
   * @throws {PageError} if the form names no owner, or one that the viewer may not see
   */
  async #ownerOfNew(visit: ResourceVisit, scope: Resource['scope']): Promise<Owner> {
    const { many } = this.#resource;
    const { field, findWorkspace } = visit;
    if (scope === 'installation') return { id: '', name: '' };
    if (scope === 'company') return (await chosenCompany({ ...visit, query: field })).company;
    const workspace = await findWorkspace(field('workspace'));
    if (!workspace)
      throw new PageError(400, `'workspace' must be the id of a workspace in which you can see ${many}.`);
    return workspace;
  }

  /** Renders a new secret. No other page shows it. */
  #secretPage(visit: ResourceVisit, heading: string, { one, secret, note }: Outcome<One>): Html {
    const { one: noun } = this.#resource;
    return html`<h1>${heading}</h1>
<p class="banner warn" role="status">Copy the ${secret?.what ?? 'secret'} now. It is not shown again.</p>
<p data-copy="${secret?.value}" data-copy-name="the ${secret?.what ?? 'secret'}"><code class="secret">${secret?.value}</code> </p>
${note !== undefined && html`<p class="lead">${note}</p>`}
${one && html`<p class="actions"><a class="button" href="${this.#pathOf(visit, one)}">Go to the ${noun}</a></p>`}`;
  }

  /** Returns the path of an entry. It includes the workspace if the lookup needs it and the viewer has several. */
  #pathOf({ workspaces }: ResourceVisit, one: One, more: Record<string, string> = {}): string {
    const { isOfOne, ownerOf, pathOf } = this.#resource;
    if (pathOf) return pathOf(one);
    const isNamed = isOfOne && workspaces.length > 1;
    return pathWith(`${this.#path}/${one.id}`, { ...(isNamed && { workspace: ownerOf(one) }), ...more });
  }

  /**
   * Finds the entry of the request.
   * @throws {PageError} if it does not exist or the viewer may not see it
   */
  async #find(visit: ResourceVisit): Promise<One> {
    const { scope, find, ownerOf, one: noun, isId = isUuid } = this.#resource;
    const { params, viewer, workspaces, findWorkspace, query, field } = visit;
    const id = params.id ?? '';
    const owners = scope === 'company' ? 'company' : 'workspaces';
    const unknown = new PageError(
      404,
      `${noun[0]!.toUpperCase()}${noun.slice(1)} not found in your ${owners}.`,
    );
    if (!isId(id)) throw unknown;
    if (scope === 'workspace') {
      const named = query('workspace') || field('workspace');
      const chosen = named === '' ? undefined : await findWorkspace(named);
      if (named !== '' && !chosen) throw unknown;
      const among = chosen ? [chosen] : workspaces;
      const match = await find(
        contextOf(visit),
        id,
        among.map((owner) => owner.id),
      );
      if (!match || !(await findWorkspace(ownerOf(match)))) throw unknown;
      return match;
    }
    const isOperator = viewer.accountId === undefined;
    const own = scope === 'company' && !isOperator ? [viewer.companyId ?? ''] : undefined;
    const match = await find(contextOf(visit), id, own);
    if (!match || (own && !own.includes(ownerOf(match)))) throw unknown;
    return match;
  }

  async #show(visit: ResourceVisit, one: One, tried?: Tried): Promise<Html> {
    const { columns, nameOf, actions } = this.#resource;
    const offered = actions.filter((action) => !action.hasOwnForm && this.#may(visit, action, one));
    // The problem of an action without a form, or of one that is no longer offered, is shown below the buttons.
    const hasForm = offered.some((action) => action.verb === tried?.verb && !isButton(action));
    return html`<h1>${nameOf(one)}</h1>
<div class="card">${describedFacts(columns, one)}</div>
${offered.filter(isButton).length > 0 && html`<div class="actions">${offered.filter(isButton).map((action) => this.#button(visit, action, one))}</div>`}
${!hasForm && formProblem(tried?.sent)}
${await this.#extras.section?.(visit, one)}
${await Promise.all(offered.filter((action) => !isButton(action)).map((action) => this.#actionForm(visit, { action, one, sent: action.verb === tried?.verb ? tried.sent : undefined })))}`;
  }

  #may({ viewer }: ResourceVisit, { permit, isOffered }: Action<One>, one: One): boolean {
    return isPermitted(viewer, permit, this.#resource.ownerOf(one)) && (isOffered?.(one) ?? true);
  }

  #button(visit: ResourceVisit, { verb, button, isDanger }: Action<One>, one: One): Html {
    const { nameOf } = this.#resource;
    return html`<form method="post" action="${this.#pathOf(visit, one)}"><button class="${isDanger && 'danger'}" name="action" value="${verb}" aria-label="${button} ${nameOf(one)}">${button}</button></form>`;
  }

  async #actionForm(
    visit: ResourceVisit,
    { action, one, sent }: { action: Action<One>; one: One; sent: Sent | undefined },
  ): Promise<Html> {
    const { verb, button, submit = button, lead, fields, confirm, filled, isDanger } = action;
    const word = confirm?.(one).trim();
    const suggestions = await action.suggestions?.(contextOf(visit), one);
    return html`<h2 id="${verb}">${button}</h2>
${lead !== undefined && html`<p class="lead">${lead}</p>`}
<form class="stack card" method="post" action="${this.#pathOf(visit, one)}#${verb}"><input type="hidden" name="action" value="${verb}">${formProblem(sent)}
${formFields(fields, { id: verb, sent, suggestions, makers: action.makers, filled: filled?.(one) as Record<string, string> | undefined })}
${
  word !== undefined &&
  html`<label>Type ${word} to confirm <input name="confirm" autocomplete="off" spellcheck="false" data-word="${word}" required></label>`
}
<p class="actions"><button class="${isDanger ? 'danger' : 'main'}">${submit}</button></p></form>`;
  }

  async #act(visit: ResourceVisit): Promise<Reply> {
    const { actions, nameOf, ownerOf, scope } = this.#resource;
    const { field } = visit;
    const one = await this.#find(visit);
    const [only, ...others] = actions;
    const verb = field('action') || (others.length === 0 ? only!.verb : '');
    const action = actions.find((candidate) => candidate.verb === verb);
    // A viewer who may do none of the actions gets 403, also for an unknown action.
    const open = actions.find(({ permit }) => isPermitted(visit.viewer, permit, ownerOf(one)));
    requirePermit(visit, (action ?? open ?? only!).permit, ownerOf(one));
    if (!action)
      throw new PageError(400, `'action' must be ${actions.map((candidate) => candidate.verb).join(', ')}.`);
    const { values, ...sent } = readForm(visit, action.fields, action.filled?.(one));
    const again = async (problems: Sent['problems'], status: 400 | 409 | 503 = 400) => ({
      ...{ title: nameOf(one), status },
      body: await this.#show(visit, one, { verb, sent: { ...sent, problems } }),
    });
    const word = action.confirm?.(one).trim();
    if (word !== undefined && field('confirm').trim() !== word)
      return again({ '': `The text does not match ${word}. Nothing was changed.` });
    if (Object.keys(sent.problems).length > 0) return again(sent.problems);
    try {
      const outcome = await action.run(contextOf(visit), { one, values });
      if (outcome.secret)
        return { title: nameOf(one), body: this.#secretPage(visit, action.button, outcome) };
      const isGone = outcome.one === undefined && outcome.row !== undefined;
      if (isGone) return { to: pathWith(this.#path, { [scope]: ownerOf(one), done: verb }) };
      return { to: this.#pathOf(visit, one, { done: verb }) };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return again(problemsOf(error, action.fields), error.status);
    }
  }
}

/** Returns the dependencies of a description's functions for a request. */
export const contextOf = (visit: ResourceVisit): Context => {
  const { services, actor, origin } = visit;
  const { database, config, connection, producer, queue, renderer } = services;
  return {
    ...{ database, config, actor, consoleUrl: origin },
    databaseUrl: () => findDatabaseUrl(config) ?? '',
    withQueue: (work) => work({ connection, producer, layout: layoutOf(config) }),
    withRenderer: (work) => work(renderer),
    requirePermit: (permit, workspaceId) => requirePermit(visit, permit, workspaceId),
    hasPermit: (permit, workspaceId) =>
      [permit].flat().every((one) => isPermitted(visit.viewer, one, workspaceId)),
    async enqueue({ workspaceId, requestId, objects }) {
      const request = {
        ...{ request_id: requestId, workspace_id: workspaceId, accepted_at: nowDate().toISOString() },
        ...presentTrace(),
      };
      const entries = await queue.enqueue(request, objects, { bytes: JSON.stringify(objects).length });
      return envelopesOf(request, entries);
    },
  };
};

/** Returns the visit with a single query parameter, as if the URL named the owner. */
const withQuery = (visit: ResourceVisit, name: string, value: string): ResourceVisit => ({
  ...visit,
  query: (parameter) => (parameter === name ? value : ''),
});

/** Maximum number of bytes of a character in a submitted form: four bytes of UTF-8 as `%F0`. */
const SENT_CHARACTER_BYTES = 12;

/** Returns the maximum size of a form in bytes, which depends on its longest texts. */
const formBytes = (all: readonly { fields: Fields }[]): number =>
  FORM_BYTES +
  Math.max(
    0,
    ...all.map(({ fields }) =>
      Object.values(fields)
        .map(({ control }) => (control.kind === 'area' ? control.maxLength * SENT_CHARACTER_BYTES : 0))
        .reduce((sum, bytes) => sum + bytes, 0),
    ),
  );

/** Whether the action needs no input and is rendered as a single button. */
const isButton = <One>({ fields, confirm }: Action<One>) =>
  Object.values(fields).every(({ isCommandOnly }) => isCommandOnly) && !confirm;

const isShownIn = <One>({ title, not }: Column<One>, where: 'list' | 'page') =>
  title !== undefined && !not?.includes(where);

function cellOf<One>({ kind, value, shown }: Column<One>, one: One, isLinked = true): Part {
  if (shown) {
    const { badge: mark, tone, text, href, code, seconds, at } = shown(one);
    const lasting = seconds !== undefined && (tone ? badge(duration(seconds), tone) : duration(seconds));
    if ([mark, text, code, seconds, at].every((one) => one === undefined || one === null || one === ''))
      return '';
    const words = text !== undefined && href !== undefined && isLinked ? linked(text, href) : text;
    return html`<span class="wrap">${mark !== undefined && badge(mark, tone)} ${lasting} ${code !== undefined && html`<code>${code}</code>`} ${words} ${at && moment(at)}</span>`;
  }
  return written(value(one) ?? null, kind);
}

const linked = (text: string, href: string): Html =>
  isUuid(text) ? uuid(text, href) : html`<a href="${href}">${text}</a>`;

function written(value: Json, kind: Column<unknown>['kind']): Part {
  if (value === null || value === '') return kind === 'time' ? moment(null) : '';
  if (kind === 'time') return moment(String(value));
  if (kind === 'number') return grouped(Number(value));
  if (kind === 'duration') return duration(Number(value));
  const text = Array.isArray(value)
    ? value.join(', ')
    : typeof value === 'object'
      ? JSON.stringify(value)
      : String(value);
  if (kind === 'id') return isUuid(text) ? uuid(text) : html`<span class="id">${text}</span>`;
  if (text === '') return '';
  if (kind === 'code') return html`<code>${text}</code>`;
  return html`<span class="wrap">${text}</span>`;
}
