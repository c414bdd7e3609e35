import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../../src/platform/files.ts';

/** Origin of a function: Penstock, a package, the JavaScript of Node, or V8 and native code. */
export type Origin = 'ours' | 'package' | 'node' | 'engine';

/** A function as a profile names it. */
export interface CallFrame {
  functionName: string;
  /** Empty for code without a file. */
  url: string;
}

/** Descriptions of the special frames of V8. */
const words: Record<string, string> = {
  '(garbage collector)': 'garbage collection',
  '(program)': 'native code of Node and V8',
};

/** Maximum characters of a name. The name of a regular expression is its whole source. */
const MAX_NAME = 60;

/**
 * Returns the name of a function with its file, without paths of this machine. Files of Penstock are relative
 * to the package root, with the names in the repository. Other files are shown as the package name, as
 * `node:…`, or as the base name.
 */
export function nameFrame(
  { functionName, url }: CallFrame,
  root: string = packageRoot,
): { name: string; origin: Origin } {
  const { file, origin } = locate(url, pathToFileURL(root).href);
  const label = words[functionName] ?? (functionName.slice(0, MAX_NAME) || 'anonymous');
  return { name: file ? `${label} ${file}` : label, origin };
}

function locate(url: string, root: string): { file: string; origin: Origin } {
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
