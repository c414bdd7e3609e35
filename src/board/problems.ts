import type { Problem, Severity } from '../checks/check.ts';
import { type Html, html, type Part } from '../platform/html.ts';
import type { Tone } from '../resources/resource.ts';
import type { Viewer } from './access.ts';
import { isPermittedIn, mayOpen, moment } from './layout.ts';

const tones: Record<Severity, Tone> = { critical: 'bad', warning: 'warn', info: 'calm' };

/** Returns whether the viewer may see a problem. Every viewer may see a problem that concerns no workspace. */
export const maySee = (viewer: Viewer, { workspaceId, permit }: Problem) =>
  workspaceId === null || isPermittedIn(viewer, permit, workspaceId);

const allNormal = html`<div class="verdict good" role="status"><p><strong>All systems normal.</strong> Accepted objects take effect within seconds.</p></div>`;

/**
 * Text for accounts, whether hidden problems exist or not: it must not reveal that another workspace has a problem.
 */
const noneShown = html`<div class="verdict calm" role="status"><p><strong>Your account sees no problem.</strong> Problems of workspaces in which your account lacks the permission are not listed.</p></div>`;

/**
 * Renders the problems that the viewer may see, most severe first: the problem, its start, its impact and the first step
 * to fix it. A problem has a link if the viewer may open its page.
 */
export function problemList(problems: readonly Problem[], viewer: Viewer): Html {
  const shown = problems.filter((problem) => maySee(viewer, problem));
  const isOperator = viewer.accountId === undefined;
  if (shown.length === 0) return isOperator ? allNormal : noneShown;
  const items = shown.map(
    ({ severity, sentence, publicSentence, impact, firstStep, link, since }) =>
      html`<li class="finding verdict ${tones[severity]}"><p><span class="severity">${severity}</span> <strong>${isOperator ? sentence : publicSentence}</strong>${since && html` since ${moment(since)}`}</p><p>${withCode(impact)}</p><p>${withCode(firstStep)}${mayOpen(viewer, link) && html` <a href="${link}">${pageOf(link)}</a>`}</p></li>`,
  );
  return html`<div role="status"><ol class="problems">${items}</ol></div>`;
}

/** Returns the link text for a problem's page. */
function pageOf(link: string): string {
  const [, page = ''] = /^\/#?([a-z-]*)/.exec(link) ?? [];
  return page === '' ? 'Open health' : `Open ${page.replaceAll('-', ' ')}`;
}

/** Renders text between backticks as code. */
function withCode(text: string): Part {
  return text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part));
}
