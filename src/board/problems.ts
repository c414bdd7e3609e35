import type { Problem, Severity } from '../checks/check.ts';
import { type Html, html, type Part } from '../platform/html.ts';
import { moment, type Tone } from './layout.ts';

const tones: Record<Severity, Tone> = { critical: 'bad', warning: 'warn', info: 'calm' };

/**
 * Renders problems, most severe first: the problem, its start, its impact and the first step to fix it.
 * @param mayOpen whether the viewer may open the page of a problem; without it, the problem has no link
 */
export function problemList(problems: readonly Problem[], mayOpen: (link: string) => boolean): Html {
  if (problems.length === 0)
    return html`<div class="verdict good" role="status"><p><strong>All systems normal.</strong> Accepted objects take effect within seconds.</p></div>`;
  const items = problems.map(
    ({ severity, sentence, impact, firstStep, link, since }) =>
      html`<li class="problem verdict ${tones[severity]}"><p><span class="severity">${severity}</span> <strong>${sentence}</strong>${since && html` since ${moment(since)}`}</p><p>${withCode(impact)}</p><p>${withCode(firstStep)}${mayOpen(link) && html` <a href="${link}">${pageOf(link)}</a>`}</p></li>`,
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
