/** Why a template cannot be rendered, in words for whoever wrote it. */
export class TemplateError extends Error {
  override name = 'TemplateError';
}

/** The page takes too long, too much memory, or is too large. */
export class TemplateTooCostly extends TemplateError {
  override name = 'TemplateTooCostly';
}

/** `line 3: what is wrong`, with the line of a place in the template. */
export function atLine(text: string, place: number, problem: string): TemplateError {
  const line = text.slice(0, place).split('\n').length;
  return new TemplateError(`line ${line}: ${problem}`);
}
