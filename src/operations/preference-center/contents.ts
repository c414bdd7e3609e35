import { BadRequest } from '../../errors.ts';
import { formProblem } from '../../preferences/form-problem.ts';
import { TemplateError } from '../../preferences/template-error.ts';
import { sampleView } from '../../preferences/view.ts';
import type { Json } from '../../profile/json.ts';
import type { Resources } from '../operation.ts';

/** The columns that a body sets; what it does not name is left out. */
export interface Contents {
  title?: string;
  pageHtml: string;
  confirmationHtml: string;
  options?: Record<string, Json>;
  state?: string;
}

/**
 * Reads a body that fits its schema, and tries both templates.
 *
 * @throws {BadRequest} naming the field, and in a template the line
 * @throws {RendererBusy} when too many templates are being tried
 */
export async function readContents(
  workspaceId: string,
  body: Record<string, Json>,
  resources: Resources,
): Promise<Contents> {
  const {
    preference_center_title: title,
    options,
    state,
  } = body as Record<string, string | null | undefined>;
  for (const field of ['preference_center_title', 'options', ...htmls]) requireStorable(field, body[field]);
  for (const field of htmls) await tryTemplate(workspaceId, field, body[field] as string, resources);
  return {
    ...(title && { title }),
    pageHtml: body.preference_center_page_html as string,
    confirmationHtml: body.confirmation_page_html as string,
    ...(options && { options: knownOptions(options as unknown as Record<string, Json>) }),
    ...(state && { state }),
  };
}

const htmls = ['preference_center_page_html', 'confirmation_page_html'];

/** Renders it for a user who has everything, so that whoever writes it sees what is wrong before a user does. */
async function tryTemplate(
  workspaceId: string,
  field: string,
  template: string,
  { renderer, database: { prisma } }: Resources,
): Promise<void> {
  const { groups, page } = await renderer.render({ template, view: sampleView }).catch((error) => {
    if (!(error instanceof TemplateError)) throw error;
    throw new BadRequest(`'${field}' is not valid: ${error.message}`);
  });
  const problem = formProblem(page, sampleView.submitUrl);
  if (problem !== undefined) throw new BadRequest(`'${field}' is not valid: ${problem}`);
  if (groups.length === 0) return;
  const found = await prisma.subscriptionGroup.findMany({
    where: { workspaceId, id: { in: groups } },
    select: { id: true },
  });
  const known = new Set(found.map(({ id }) => id));
  const unknown = groups.filter((id) => !known.has(id));
  if (unknown.length > 0) {
    throw new BadRequest(`'${field}' is not valid: there is no subscription group ${unknown.join(', ')}`);
  }
}

function knownOptions(options: Record<string, Json>): Record<string, Json> {
  const known = ['meta-viewport-content', 'links-tags'];
  return Object.fromEntries(Object.entries(options).filter(([name]) => known.includes(name)));
}

/** Postgres takes neither U+0000 nor half a surrogate pair, in text or in JSON. */
function requireStorable(field: string, value: Json | undefined): void {
  if (value === undefined || value === null) return;
  const texts = typeof value === 'string' ? [value] : textsOf(value);
  if (texts.every((text) => text.isWellFormed() && !text.includes('\0'))) return;
  throw new BadRequest(`'${field}' is not valid: it must not hold U+0000 or lone surrogates`);
}

/** However deep it nests: a call for each level could overflow the stack. */
function textsOf(value: Json): string[] {
  const texts: string[] = [];
  const left: Json[] = [value];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    if (typeof next === 'string') texts.push(next);
    else if (typeof next === 'object' && next !== null)
      for (const member of Object.values(next)) left.push(member);
  }
  return texts;
}
