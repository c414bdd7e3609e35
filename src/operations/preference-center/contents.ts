import { ApiError, BadRequest } from '../../errors.ts';
import type { PreferenceCenter, Prisma } from '../../generated/prisma/client.ts';
import { formProblem } from '../../preferences/page.ts';
import { sampleView } from '../../preferences/submission.ts';
import { TemplateError } from '../../preferences/template.ts';
import type { Json } from '../../profile/json.ts';
import { invalid } from '../../profile/refusal.ts';
import { uuidOf } from '../../profile/values.ts';
import { compile, describeError } from '../../schemas/compile.ts';
import type { Database } from '../../store/database.ts';
import type { Resources } from '../operation.ts';
import { createBody } from './schemas.ts';

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
  for (const field of htmls)
    await tryTemplate({ workspaceId, field, template: body[field] as string }, resources);
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
  { workspaceId, field, template }: { workspaceId: string; field: string; template: string },
  { renderer, database: { prisma } }: Resources,
): Promise<void> {
  const { groups, page } = await renderer
    .render(workspaceId, { template, view: sampleView })
    .catch((error) => {
      if (!(error instanceof TemplateError)) throw error;
      throw new BadRequest(invalid(field, error.message));
    });
  const problem = formProblem(page, sampleView.submitUrl);
  if (problem !== undefined) throw new BadRequest(invalid(field, problem));
  if (groups.length === 0) return;
  const found = await prisma.subscriptionGroup.findMany({
    where: { workspaceId, id: { in: groups } },
    select: { id: true },
  });
  const known = new Set(found.map(({ id }) => id));
  const unknown = groups.filter((id) => !known.has(id));
  if (unknown.length > 0) {
    throw new BadRequest(invalid(field, `there is no subscription group ${unknown.join(', ')}`));
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
  throw new BadRequest(invalid(field, 'it must not hold U+0000 or lone surrogates'));
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

export type { PreferenceCenter };

/** The id in a path, in lower case; what is no UUID names nothing. */
export function centerIdOf(params: Record<string, string>): string | undefined {
  return uuidOf(params.preferenceCenterExternalId ?? '');
}

/** What every answer about one center begins with. */
export function stampsOf({
  id,
  createdAt,
  updatedAt,
}: Pick<PreferenceCenter, 'id' | 'createdAt' | 'updatedAt'>): Record<string, Json> {
  return {
    preference_center_api_id: id,
    created_at: createdAt.toISOString(),
    updated_at: updatedAt.toISOString(),
  };
}

export function createdBody(center: PreferenceCenter): Record<string, Json> {
  const liquid_tag = `{{preference_center.\${${center.name}}}}`;
  return { ...stampsOf(center), liquid_tag, message: 'success' };
}

export function updatedBody(center: PreferenceCenter): Record<string, Json> {
  return { ...stampsOf(center), message: 'success' };
}

const DEFAULT_TITLE = 'Preference Center';

/** Most preference centers of a workspace: they are listed in one answer, without pages. */
export const MAX_CENTERS = 1000;

interface New {
  workspaceId: string;
  id: string;
  name: string;
  contents: Contents;
  now: Date;
}

/**
 * Makes a center. Of two that are made at once with one name, Postgres lets one be.
 * @throws {ApiError} 400 when the name is taken, or the workspace has as many as it may
 */
export async function createCenter(
  { prisma }: Database,
  { workspaceId, id, name, contents, now }: New,
): Promise<PreferenceCenter> {
  const { options = {}, title = DEFAULT_TITLE, state = 'active', ...htmls } = contents;
  const data = {
    ...{ workspaceId, id, name, title, state, ...htmls },
    options: options as Prisma.InputJsonObject,
    createdAt: now,
    updatedAt: now,
  };
  const create = () =>
    prisma.$transaction(async (tx) => {
      // Whoever makes one at the same time counts afterwards.
      await tx.$queryRaw`select 1 as locked from workspaces where id = ${workspaceId}::uuid for no key update`;
      if ((await tx.preferenceCenter.count({ where: { workspaceId } })) >= MAX_CENTERS)
        throw new ApiError('tooManyPreferenceCenters');
      return tx.preferenceCenter.create({ data });
    });
  return againAfterDeadlock(create).catch(async (error: { code?: string }) => {
    if (error.code !== 'P2002') throw error;
    // Either key may have been in the way; only the name is something to change.
    const named = await prisma.preferenceCenter.findUnique({
      where: { workspaceId_name: { workspaceId, name } },
    });
    throw named ? new ApiError('nameTaken', { suffix: name }) : error;
  });
}

/** Changes a center; undefined when there is none with this id. */
export async function updateCenter(
  { prisma }: Database,
  { workspaceId, id, contents: { options, ...contents }, now }: Omit<New, 'name'>,
): Promise<PreferenceCenter | undefined> {
  const update = () =>
    prisma.preferenceCenter.updateManyAndReturn({
      where: { workspaceId, id },
      data: { ...contents, ...(options && { options: options as Prisma.InputJsonObject }), updatedAt: now },
    });
  const [updated] = await againAfterDeadlock(update);
  return updated;
}

/** Each takes the one of a deadlock that ends as its victim: of several at once all but one may. */
const TRIES = 5;

/**
 * A table that every node has is locked as a whole by who writes it, and who makes a center has locked its workspace
 * before. On a Citus those who change the center meanwhile lock the two in the other order. Whoever is ended for it has
 * changed nothing.
 */
async function againAfterDeadlock<Result>(write: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await write();
    } catch (error) {
      if ((error as { code?: string }).code !== 'P2034' || tries === TRIES) throw error;
    }
  }
}

const checkNew = compile(createBody);

/** The name of a center that is to be made under an id of the caller's. @throws {BadRequest} */
export function requireName(body: Record<string, Json>): string {
  if (!checkNew(body)) throw new BadRequest(describeError(checkNew.errors![0]!));
  return body.name as string;
}
