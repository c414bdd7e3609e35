import { setPriority } from 'node:os';
import { createEngine } from './engine.ts';
import { type PageForms, readForms } from './forms.ts';
import { MAX_CONTROLS } from './page.ts';
import type { View } from './submission.ts';
import { TemplateTooCostly } from './template.ts';

/** What a rendering process is asked. */
export interface Rendering {
  template: string;
  view: View;
}

/** What it answers. */
export type Rendered =
  | {
      html: string;
      /** Ids of the subscription groups that the template names. */
      groups: string[];
      page: PageForms;
    }
  | { problem: string; costly: boolean };

export interface Answer {
  rendered: Rendered;
  /** Milliseconds of processor time that it took: a busy machine makes no template slow. */
  cpu: number;
}

// A process of its own, with an empty environment and little memory. Nothing that a template makes Liquid do can hold
// up the web process, end it, or reach a secret of it. It gives way to everything else on the machine.
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
