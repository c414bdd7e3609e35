#!/usr/bin/env node
// The check comes first, in JavaScript that any Node can read: npm only warns when an installed package does not support
// the version of Node.
require('./supported-node.cjs');
import('../dist/src/cli.js');
