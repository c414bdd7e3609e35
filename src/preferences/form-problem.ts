import { GLOBAL_FIELD, globalStates, groupOfField, groupStates } from './form-fields.ts';
import type { Field, PageForms } from './read-forms.ts';

/**
 * Why what a visitor chooses on a page would not arrive, if so, in words for whoever wrote it. Without this a visitor
 * would be the first to see it, or nobody at all.
 *
 * @param submitUrl where the page is told to send its form
 */
export function formProblem({ forms, stray }: PageForms, submitUrl: string): string | undefined {
  const lost = stray.find(isState);
  if (lost) {
    return `the field ${lost.name} stands in no form, and would not be sent: put it into one, or name its id in form="…"`;
  }
  for (const { method, action, enctype, fields } of forms) {
    const field = fields.find(isState);
    if (!field) continue;
    const problem = (rule: string) => `the form with the field ${field.name} ${rule}`;
    if (method !== 'post') return problem('must have method="post"');
    if (action !== '' && action !== submitUrl) {
      return problem('must have action="{{preference_center_submit_url}}"');
    }
    if (enctype !== undefined && enctype !== 'application/x-www-form-urlencoded') {
      return problem('must not have an enctype of its own');
    }
    const wrong = fields.find((one) => one.fixed && isState(one) && !statesOf(one).includes(one.value));
    if (wrong)
      return `the field ${wrong.name} has the value '${wrong.value}': it must be one of ${statesOf(wrong).join(', ')}`;
  }
  return undefined;
}

function isState({ name }: Field): boolean {
  return name === GLOBAL_FIELD || groupOfField(name) !== undefined;
}

function statesOf({ name }: Field): readonly string[] {
  return name === GLOBAL_FIELD ? globalStates : groupStates;
}
