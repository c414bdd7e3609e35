import { parentPort } from 'node:worker_threads';
import { createEngine } from './engine.ts';
import { type Field, readForms } from './read-forms.ts';
import { TemplateTooCostly } from './template-error.ts';
import type { View } from './view.ts';

/** What a thread is asked. */
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
      forms: Field[][];
    }
  | { problem: string; costly: boolean };

// A thread of its own, with an empty environment: nothing that a template makes Liquid do can hold up the process
// or reach a secret of it. The process ends it when it takes too long.
const engine = createEngine();

function answer({ template, view }: Rendering): Rendered {
  try {
    const parsed = engine.parse(template);
    const html = engine.render(parsed, view);
    return { html, groups: parsed.groups, forms: readForms(html) };
  } catch (error) {
    return { problem: (error as Error).message, costly: error instanceof TemplateTooCostly };
  }
}

parentPort!.on('message', (rendering: Rendering) => parentPort!.postMessage(answer(rendering)));
parentPort!.postMessage('ready');
