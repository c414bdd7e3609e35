/** A line of the Procfile whose program is one of ours. */
export interface ProcfileLine {
  name: string;
  /** Options of Node itself. */
  nodeArgs: string[];
  /** The compiled file, relative to the package. */
  file: string;
  args: string[];
}

/**
 * Reads lines such as `web: node --max-semi-space-size=32 dist/src/web.js`, in their order.
 * @throws {Error} naming a line that is anything else: `npm start` has no shell to give it to.
 */
export function parseProcfile(text: string): ProcfileLine[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line && !line.startsWith('#'))
    .map((line) => {
      const [, name, options, file, args] =
        /^(\w+): *node ((?:--\S+ )*)(\S+\.js)((?: \S+)*)$/.exec(line) ?? [];
      if (!name || !file) throw new Error(`Procfile: not "name: node file.js": ${line}`);
      return { name, nodeArgs: words(options), file, args: words(args) };
    });
}

function words(text = ''): string[] {
  return text.split(' ').filter(Boolean);
}
