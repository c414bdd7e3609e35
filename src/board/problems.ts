import type { Problem, Severity } from '../checks/check.ts';
import { type Html, html, type Part } from '../platform/html.ts';
import { moment, type Tone } from './layout.ts';

const tones: Record<Severity, Tone> = { critical: 'bad', warning: 'warn', info: 'calm' };

/** The list of problems, the most severe first: what is wrong, since when, what suffers, and what to do. */
export function problemList(problems: readonly Problem[]): Html {
  if (problems.length === 0)
    return html`<div class="verdict good" role="status"><p><strong>All systems normal.</strong> Accepted objects take effect within seconds.</p></div>`;
  const items = problems.map(
    ({ severity, sentence, impact, firstStep, link, since }) =>
      html`<li class="problem verdict ${tones[severity]}"><p><span class="severity">${severity}</span> <strong>${sentence}</strong>${since && html` since ${moment(since)}`}</p><p>${withCode(impact)}</p><p>${withCode(firstStep)} <a href="${link}">${pageOf(link)}</a></p></li>`,
  );
  return html`<div role="status"><ol class="problems">${items}</ol></div>`;
}

/** Names the page that a link leads to. */
function pageOf(link: string): string {
  const [, page = ''] = /^\/#?([a-z-]*)/.exec(link) ?? [];
  return page === '' ? 'Open health' : `Open ${page.replaceAll('-', ' ')}`;
}

/** Shows what stands between backticks as code. */
function withCode(text: string): Part {
  return text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part));
}
