// Says in one sentence that this Node is too old, before anything is loaded that it cannot read: for that reason this
// is JavaScript of 2015. The versions are those of package.json.
const ranges = require('../package.json').engines.node.split(' || ');
const found = process.versions.node.split('.').map(Number);

/** Whether the version is the one of the range or a later one; of the same major where the range says ^. */
function suits(range) {
  const [, kind, ...wanted] = /^(\^|>=)(\d+)\.(\d+)\.(\d+)$/.exec(range);
  const [major, minor, patch] = wanted.map(Number);
  if (found[0] !== major) return kind === '>=' && found[0] > major;
  return found[1] === minor ? found[2] >= patch : found[1] > minor;
}

function describe(range) {
  const [version, major] = /(\d+)\.\d+/.exec(range);
  return range.startsWith('>=') ? `${major} or newer` : `${major} (${version} or newer)`;
}

if (!ranges.some(suits)) {
  const versions = ranges.map(describe).join(', ');
  process.stderr.write(`Penstock runs on Node ${versions}; this is Node ${process.versions.node}.\n`);
  process.exit(1);
}
