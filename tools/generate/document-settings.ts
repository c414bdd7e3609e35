import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { packagesPage } from '../supply/packages.ts';
import { errorsPage } from './errors.ts';
import { envExample, settingsPage } from './settings.ts';

// Writes what is generated from the settings of src/platform/settings.ts; test/config.rules.test.ts holds it against them.
writeFileSync(path.join(packageRoot, '.env.example'), envExample());
mkdirSync(path.join(packageRoot, 'docs'), { recursive: true });
writeFileSync(path.join(packageRoot, 'docs/settings.md'), settingsPage());
// And the codes of errors, from src/errors.ts: test/edge/error-codes.rules.test.ts.
writeFileSync(path.join(packageRoot, 'docs/errors.md'), errorsPage());
// And the packages of production, from package-lock.json: test/supply/packages.rules.test.ts.
mkdirSync(path.join(packageRoot, 'generated'), { recursive: true });
writeFileSync(path.join(packageRoot, 'generated/packages.md'), packagesPage());
