import { setPriority } from 'node:os';
import {
  Context,
  type Emitter,
  Liquid,
  Tag,
  type TagToken,
  type Template,
  type TopLevelToken,
  toValueSync,
} from 'liquidjs';
import { grouped } from '../platform/format.ts';
import { uuidOf } from '../profile/values.ts';
import {
  GLOBAL_FIELD,
  groupField,
  MAX_CONTROLS,
  MAX_PAGE,
  MAX_TEMPLATE,
  MEMORY_LIMIT,
  type PageForms,
  RENDER_LIMIT,
  readForms,
} from './page.ts';
import type { View } from './submission.ts';
import { TemplateError, TemplateTooCostly, translateUserNames } from './template.ts';

/** Tags that read other templates, which do not exist, and the filter `raw`, which would output an attribute as HTML. */
const FORBIDDEN_TAGS = ['include', 'render', 'layout', 'block'];
const FORBIDDEN_FILTERS = ['raw'];

/** The tag `{% form_field_name :email_global_state %}` or `{% form_field_name :subscription_group <group id> %}`. */
class FormFieldName extends Tag {
  private readonly field: string;

  constructor(token: TagToken, rest: TopLevelToken[], liquid: Liquid) {
    super(token, rest, liquid);
    const [kind, id, ...more] = token.args.trim().split(/\s+/);
    const group = kind === ':subscription_group' && id !== undefined ? uuidOf(id) : undefined;
    if (kind === ':email_global_state' && id === undefined) this.field = GLOBAL_FIELD;
    else if (group !== undefined && more.length === 0) this.field = groupField(group);
    else {
      throw new Error(
        "'form_field_name' takes :email_global_state, or :subscription_group and the id of a group",
      );
    }
  }

  /** Id of the subscription group. Undefined for the global email state. */
  get group(): string | undefined {
    return this.field === GLOBAL_FIELD ? undefined : uuidOf(this.field.slice(-36));
  }

  // biome-ignore lint/correctness/useYield: Liquid drives every tag as a generator
  *render(_context: Context, emitter: Emitter): Generator<unknown, void, unknown> {
    emitter.write(this.field);
  }
}

/** Output that stops the rendering when the page exceeds MAX_PAGE. */
class BoundedPage implements Emitter {
  buffer = '';

  write(html: unknown): void {
    this.buffer += String(html ?? '');
    if (this.buffer.length > MAX_PAGE) throw new Error('page size limit exceeded');
  }
}

interface Parsed {
  templates: Template[];
  /** Ids of the subscription groups in the template. */
  groups: string[];
}

/** Creates a Liquid engine for preference centers, which escapes all output, so that attributes are always shown as text. */
function createEngine() {
  const named = new Set<string>();
  const liquid = new Liquid({
    templates: {},
    strictFilters: true,
    ownPropertyOnly: true,
    outputEscape: 'escape',
    timezoneOffset: 0,
    parseLimit: MAX_TEMPLATE * 2,
    renderLimit: RENDER_LIMIT,
    memoryLimit: MEMORY_LIMIT,
  });
  liquid.registerTag(
    'form_field_name',
    class extends FormFieldName {
      constructor(token: TagToken, rest: TopLevelToken[], engine: Liquid) {
        super(token, rest, engine);
        if (this.group) named.add(this.group);
      }
    },
  );
  for (const name of FORBIDDEN_TAGS) delete liquid.tags[name];
  for (const name of FORBIDDEN_FILTERS) delete liquid.filters[name];

  /**
   * Parses a template.
   * @throws {TemplateError} with the line
   */
  function parse(template: string): Parsed {
    const { text, groups } = translateUserNames(template);
    named.clear();
    try {
      const templates = liquid.parse(text);
      return { templates, groups: [...new Set([...groups, ...named])] };
    } catch (error) {
      throw toTemplateError(error);
    }
  }

  /**
   * Renders a parsed template.
   * @throws {TemplateError} with the line
   */
  function render({ templates }: Parsed, view: View): string {
    const scope = {
      attributes: view.attributes,
      custom_attribute: view.customAttributes,
      subscribed_state: { ...view.groups, email_global: view.emailGlobal },
      preference_center_submit_url: view.submitUrl,
    };
    const page = new BoundedPage();
    try {
      const context = new Context(scope, liquid.options, { sync: true });
      toValueSync(liquid.renderer.renderTemplates(templates, context, page));
    } catch (error) {
      throw toTemplateError(error);
    }
    return page.buffer;
  }

  return { parse, render };
}

/**
 * Converts an error of Liquid to a message that begins with the line. For an exceeded limit, the message describes the
 * limit.
 */
function toTemplateError(error: unknown): TemplateError {
  const { message } = error as Error;
  const [, problem = message, line] = /^([\s\S]*), line:(\d+), col:\d+$/.exec(message) ?? [];
  const prefix = line === undefined ? '' : `line ${line}: `;
  const limit = /^(template render|memory alloc|page size|parse length) limit exceeded/.exec(problem)?.[1];
  return limit === undefined
    ? new TemplateError(prefix + problem)
    : new TemplateTooCostly(prefix + limits[limit as keyof typeof limits]);
}

const limits = {
  'template render': `it takes longer than ${RENDER_LIMIT} ms`,
  'memory alloc': 'it makes more values than fit into memory',
  'page size': `the page has more than ${grouped(MAX_PAGE)} characters`,
  'parse length': `it has more than ${grouped(MAX_TEMPLATE)} characters`,
};

/** A request to a render process. */
export interface Rendering {
  template: string;
  view: View;
}

/** The result of a rendering. */
export type Rendered =
  | {
      html: string;
      /** Ids of the subscription groups in the template. */
      groups: string[];
      page: PageForms;
    }
  | { problem: string; costly: boolean };

export interface Answer {
  rendered: Rendered;
  /** Processor time in milliseconds. In contrast to elapsed time, it does not depend on the load of the machine. */
  cpu: number;
}

// This process has an empty environment and little memory. So a template cannot block the web process, crash it, or
// read its secrets. Its priority is lower than that of other processes.
setPriority(10);
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => {});
process.on('disconnect', () => process.exit());

const engine = createEngine();

function render({ template, view }: Rendering): Rendered {
  try {
    const parsed = engine.parse(template);
    const html = engine.render(parsed, view);
    const page = readForms(html);
    const controls = page.forms.reduce((sum, { fields }) => sum + fields.length, page.stray.length);
    if (controls > MAX_CONTROLS || page.forms.length > MAX_CONTROLS) {
      return { problem: `the page has more than ${MAX_CONTROLS} forms or named controls`, costly: true };
    }
    return { html, groups: parsed.groups, page };
  } catch (error) {
    return { problem: (error as Error).message, costly: error instanceof TemplateTooCostly };
  }
}

function answer(rendering: Rendering): Answer {
  const before = process.cpuUsage();
  const rendered = render(rendering);
  const { user, system } = process.cpuUsage(before);
  return { rendered, cpu: (user + system) / 1000 };
}

process.on('message', (rendering: Rendering) => process.send!(answer(rendering)));
process.send!('ready');
