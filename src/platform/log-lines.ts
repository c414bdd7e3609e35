/** What pino's numbers stand for, where a person has to see it. */
const LEVELS: Record<number, string> = { 10: 'trace', 20: 'debug', 40: 'WARN', 50: 'ERROR', 60: 'FATAL' };

/** SGR codes of a terminal by the level: grey, yellow, red. */
const COLOURS: Record<number, number> = { 10: 90, 20: 90, 40: 33, 50: 31, 60: 31 };

/** Members that stand elsewhere in the line. */
const PLACED = new Set(['level', 'time', 'process', 'msg', 'err']);

/** Width of the longest name of a process. */
const NAME = 7;

/**
 * A line of the log as a person reads it at a terminal: time, process, what happened, and its members as `name=value`.
 * What is no JSON object stays as it is.
 *
 * @param line of pino, with its line feed
 * @param colours whether the terminal has them
 */
export function readableLine(line: string, colours: boolean): string {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(line);
  } catch {
    return line;
  }
  if (entry === null || typeof entry !== 'object') return line;
  const { level, time, process, msg, err } = entry;
  const word = LEVELS[level as number];
  const paint = (text: string, code: number | undefined) =>
    colours && code !== undefined ? `\u001b[${code}m${text}\u001b[0m` : text;
  const members = Object.entries(entry)
    .filter(([name, value]) => !PLACED.has(name) && value !== undefined)
    .map(([name, value]) => `${name}=${shown(value)}`);
  const what = paint(
    `${word === undefined ? '' : `${word} `}${harmless(String(msg ?? ''))}`,
    COLOURS[level as number],
  );
  const parts = [
    String(time ?? '').slice(11, 19),
    harmless(String(process ?? '')).padEnd(NAME),
    [what, ...(members.length > 0 ? [paint(members.join(' '), colours ? 90 : undefined)] : [])].join('  '),
  ];
  return `${parts.join('  ')}${describeError(err, Number(level))}\n`;
}

/** Its message; of errors that need a person its stack as well, each line on its own. */
function describeError(err: unknown, level: number): string {
  if (err === null || typeof err !== 'object') return '';
  const { message, stack } = err as { message?: unknown; stack?: unknown };
  const lines = level >= 50 && typeof stack === 'string' ? stack.split('\n') : [String(message ?? '')];
  return lines.map((line) => `\n          ${harmless(line)}`).join('');
}

/** Words as they are, all else as JSON. */
function shown(value: unknown): string {
  const text = typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  return harmless(text ?? 'null');
}

/** Control characters as JSON escapes: a terminal would obey them, and a line would be two. */
function harmless(text: string): string {
  return text.replace(/\p{Cc}/gu, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
