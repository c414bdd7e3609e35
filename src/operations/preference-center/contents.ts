import { ApiError, BadRequest } from '../../errors.ts';
import type { PreferenceCenter, Prisma } from '../../generated/prisma/client.ts';
import { formProblem } from '../../preferences/page.ts';
import type { Renderer } from '../../preferences/renderer.ts';
import { sampleView } from '../../preferences/submission.ts';
import { TemplateError } from '../../preferences/template.ts';
import type { Json } from '../../profile/json.ts';
import { invalid } from '../../profile/refusal.ts';
import { uuidOf } from '../../profile/values.ts';
import { compile, describeError } from '../../schemas/compile.ts';
import type { Database } from '../../store/database.ts';
import { createBody, updateBody } from './schemas.ts';

/** The columns that a body sets. Columns that the body does not contain are absent. */
export interface Contents {
  title?: string;
  pageHtml: string;
  confirmationHtml: string;
  options?: Record<string, Json>;
  state?: string;
}

/** Dependencies of a test rendering. */
interface RenderResources {
  database: Database;
  renderer: Pick<Renderer, 'render'>;
}

/**
 * Reads a validated body and test-renders both templates.
 *
 * @throws {BadRequest} with the field, and for a template the line
 * @throws {RendererBusy} if all render processes are busy
 */
export async function readContents(
  workspaceId: string,
  body: Record<string, Json>,
  resources: RenderResources,
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
    ...(options && { options: pickOptions(options as unknown as Record<string, Json>) }),
    ...(state && { state }),
  };
}

const htmls = ['preference_center_page_html', 'confirmation_page_html'];

/** Test-renders a template for a sample user with all data, so that its author sees errors before users do. */
async function tryTemplate(
  { workspaceId, field, template }: { workspaceId: string; field: string; template: string },
  { renderer, database: { prisma } }: RenderResources,
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
  const rows = await prisma.subscriptionGroup.findMany({
    where: { workspaceId, id: { in: groups } },
    select: { id: true },
  });
  const existing = new Set(rows.map(({ id }) => id));
  const unknown = groups.filter((id) => !existing.has(id));
  if (unknown.length > 0) {
    throw new BadRequest(invalid(field, `there is no subscription group ${unknown.join(', ')}`));
  }
}

function pickOptions(options: Record<string, Json>): Record<string, Json> {
  const names = ['meta-viewport-content', 'links-tags'];
  return Object.fromEntries(Object.entries(options).filter(([name]) => names.includes(name)));
}

/** Requires text that Postgres can store: U+0000 and lone surrogates are invalid in text and in JSON. */
function requireStorable(field: string, value: Json | undefined): void {
  if (value === undefined || value === null) return;
  const texts = typeof value === 'string' ? [value] : textsOf(value);
  if (texts.every((text) => text.isWellFormed() && !text.includes('\0'))) return;
  throw new BadRequest(invalid(field, 'it must not hold U+0000 or lone surrogates'));
}

/** Returns all strings in a value. Iterates, because recursion could overflow the stack on deep nesting. */
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

/** Reads the id of a path in lower case. Returns undefined if it is not a UUID, which matches no center. */
export function centerIdOf(params: Record<string, string>): string | undefined {
  return uuidOf(params.preferenceCenterExternalId ?? '');
}

/** Returns the members that each answer about a single center begins with. */
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

/** Maximum number of preference centers per workspace. One answer lists all of them, without pages. */
export const MAX_CENTERS = 1000;

interface New {
  workspaceId: string;
  id: string;
  name: string;
  contents: Contents;
  now: Date;
  /** Writes the audit entry of the change in its transaction; absent if it has none. */
  record?: ((tx: Prisma.TransactionClient) => Promise<unknown>) | undefined;
}

/**
 * Creates a center. If two requests create the same name concurrently, a unique index lets only one succeed.
 * @throws {ApiError} 400 if the name is taken, or if the workspace has reached MAX_CENTERS
 */
export async function createCenter(
  { prisma }: Database,
  { workspaceId, id, name, contents, now, record }: New,
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
      // Concurrent creations wait for this lock, so that each counts the centers of the ones before.
      await tx.$queryRaw`select 1 as locked from workspaces where id = ${workspaceId}::uuid for no key update`;
      if ((await tx.preferenceCenter.count({ where: { workspaceId } })) >= MAX_CENTERS)
        throw new ApiError('tooManyPreferenceCenters');
      const created = await tx.preferenceCenter.create({ data });
      await record?.(tx);
      return created;
    });
  return retryAfterDeadlock(create).catch(async (error: { code?: string }) => {
    if (error.code !== 'P2002') throw error;
    // The id or the name may be taken. Only a taken name is an error that the caller can fix.
    const named = await prisma.preferenceCenter.findUnique({
      where: { workspaceId_name: { workspaceId, name } },
    });
    throw named ? new ApiError('nameTaken', { suffix: name }) : error;
  });
}

/** Changes a center. Returns undefined if the workspace has no center with this id. */
export async function updateCenter(
  { prisma }: Database,
  { workspaceId, id, contents: { options, ...contents }, now, record }: Omit<New, 'name'>,
): Promise<PreferenceCenter | undefined> {
  const update = async (tx: Prisma.TransactionClient) => {
    const [updated] = await tx.preferenceCenter.updateManyAndReturn({
      where: { workspaceId, id },
      data: { ...contents, ...(options && { options: options as Prisma.InputJsonObject }), updatedAt: now },
    });
    if (updated) await record?.(tx);
    return updated;
  };
  return retryAfterDeadlock(() => (record ? prisma.$transaction(update) : update(prisma)));
}

/**
 * Maximum number of attempts. Each deadlock ends one of several concurrent writes, so one write may be the victim
 * repeatedly.
 */
const MAX_ATTEMPTS = 5;

/**
 * Repeats a write that Postgres ended because of a deadlock. On Citus, a write to a reference table locks the whole
 * table. Creating a center locks its workspace first; a concurrent change of a center takes the two locks in the
 * opposite order. The ended write has changed nothing.
 */
async function retryAfterDeadlock<Result>(write: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await write();
    } catch (error) {
      if ((error as { code?: string }).code !== 'P2034' || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}

const checkNew = compile(createBody);
const checkUpdate = compile(updateBody);

/**
 * Returns the name of a center that is created with an id of the caller.
 * @throws {BadRequest} if the body is not valid for a new center
 */
export function requireName(body: Record<string, Json>): string {
  requireValid(body, { isNew: true });
  return body.name as string;
}

/** @throws {BadRequest} if the body is not valid for a new center, or for a change of one */
export function requireValid(body: Record<string, Json>, { isNew }: { isNew: boolean }): void {
  const check = isNew ? checkNew : checkUpdate;
  if (!check(body)) throw new BadRequest(describeError(check.errors![0]!));
}
