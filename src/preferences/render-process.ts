import { setPriority } from 'node:os';
import { createEngine } from './engine.ts';
import { type PageForms, readForms } from './read-forms.ts';
import { TemplateTooCostly } from './template-error.ts';
import type { View } from './view.ts';

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

// A process of its own, with an empty environment and little memory: nothing that a template makes Liquid do can
// hold up the web process, end it, or reach a secret of it. It gives way to everything else on the machine.
setPriority(10);
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => {});
process.on('disconnect', () => process.exit());

const engine = createEngine();

function answer({ template, view }: Rendering): Rendered {
  try {
    const parsed = engine.parse(template);
    const html = engine.render(parsed, view);
    return { html, groups: parsed.groups, page: readForms(html) };
  } catch (error) {
    return { problem: (error as Error).message, costly: error instanceof TemplateTooCostly };
  }
}

process.on('message', (rendering: Rendering) => process.send!(answer(rendering)));
process.send!('ready');
