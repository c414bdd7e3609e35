#!/usr/bin/env node
// The check comes first, in JavaScript that any Node can read: npm only warns when an installed package does not support
// the version of Node.
require('./supported-node.cjs');
const path = require('node:path');
const { existsSync } = require('node:fs');
const { pathToFileURL } = require('node:url');

// The package contains `penstock dev` as a few files, which load in half of the time. In a clone they may be outdated.
const bundle = path.join(__dirname, '../dist/bundle/cli.js');
const isInstalled = __dirname.split(path.sep).includes('node_modules');
import(
  process.argv[2] === 'dev' && isInstalled && existsSync(bundle)
    ? pathToFileURL(bundle).href
    : '../dist/src/cli.js'
);
