// Says in one sentence that this Node is none of those that are supported, before anything is loaded that it cannot
// read: for that reason this is JavaScript of 2015. The versions are those of package.json, a range with ^ for each major.
const ranges = require('../package.json').engines.node.split(' || ').map(numbersOf);
const found = numbersOf(process.versions.node);

function numbersOf(version) {
  return version.replace('^', '').split('.').map(Number);
}

/** Whether the version is the one of the range, or a later one of the same major. */
function suits(range) {
  if (found[0] !== range[0]) return false;
  return found[1] === range[1] ? found[2] >= range[2] : found[1] > range[1];
}

function describe(range) {
  return range[1] === 0 ? `${range[0]}` : `${range[0]} (${range[0]}.${range[1]} or newer)`;
}

if (!ranges.some(suits)) {
  const versions = ranges.map(describe);
  const last = versions.pop();
  const all = `${versions.join(', ')} or ${last}`;
  process.stderr.write(`Penstock runs on Node ${all}; this is Node ${process.versions.node}.\n`);
  process.exit(1);
}
