/** What the person at the command line has to know and can change; its one line is all that is printed. */
export class Refusal extends Error {
  override name = 'Refusal';
}

/** The one line that says what went wrong, without a stack. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Prisma puts the call, its source and blank lines before the reason; the reason stands last.
  const lines = error.message.split('\n').map((line) => line.trim());
  return lines.findLast((line) => line !== '') ?? codeOf(error) ?? error.name;
}

/** The code that Node, Postgres or Prisma gave the error. */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** For `catch`: what is unique and there already is refused with these words; anything else goes on. */
export function refuseTaken(words: string): (error: unknown) => never {
  return (error) => {
    throw codeOf(error) === 'P2002' ? new Refusal(words) : error;
  };
}
