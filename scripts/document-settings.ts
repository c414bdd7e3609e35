import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../src/package-root.ts';
import { envExample, readmeWithSettings } from './settings.ts';

// Writes what is generated from the settings of src/config.ts; test/config.test.ts holds it against them.
writeFileSync(path.join(packageRoot, '.env.example'), envExample());
const readme = path.join(packageRoot, 'README.md');
if (existsSync(readme)) writeFileSync(readme, readmeWithSettings(readFileSync(readme, 'utf8')));
