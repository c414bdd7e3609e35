import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../../src/platform/files.ts';

/** Whose code it is: ours, a package's, Node's own JavaScript, or none that has a file. */
export type Origin = 'ours' | 'package' | 'node' | 'engine';

/** A function as a profile names it. */
export interface CallFrame {
  functionName: string;
  /** Empty for what is no code of a file. */
  url: string;
}

/** What V8 calls by names of its own, in words. */
const words: Record<string, string> = {
  '(garbage collector)': 'garbage collection',
  '(program)': 'native code of Node and V8',
};

/** Characters of a name: that of a regular expression is the whole of it. */
const LONGEST = 60;

/**
 * A function and its file, without a path of this machine: files of ours below the package root, as they are called in
 * the repository; of packages the package; of Node `node:…`; of others the file alone.
 */
export function nameFrame(
  { functionName, url }: CallFrame,
  root: string = packageRoot,
): { name: string; origin: Origin } {
  const { file, origin } = placeOf(url, pathToFileURL(root).href);
  const said = words[functionName] ?? (functionName.slice(0, LONGEST) || 'anonymous');
  return { name: file ? `${said} ${file}` : said, origin };
}

function placeOf(url: string, root: string): { file: string; origin: Origin } {
  const inPackages = url.lastIndexOf('/node_modules/');
  if (inPackages >= 0) {
    const [first, second] = url.slice(inPackages + '/node_modules/'.length).split('/');
    const name = first!.startsWith('@') ? `${first}/${second}` : first!;
    return { file: `node_modules/${name}`, origin: 'package' };
  }
  if (url.startsWith('node:')) return { file: url, origin: 'node' };
  if (url === '') return { file: '', origin: 'engine' };
  const below = url.startsWith(`${root}/`) ? url.slice(root.length + 1) : url.slice(url.lastIndexOf('/') + 1);
  return { file: below.replace(/^dist\//, '').replace(/\.js$/, '.ts'), origin: 'ours' };
}
