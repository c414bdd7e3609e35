import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { settings } from '../config.ts';
import { allOperations } from '../operations/index.ts';
import { packageRoot } from '../package-root.ts';
import { openApiDocument } from './openapi.ts';

// Writes docs/openapi.json, as /openapi.json is with the default settings; test/edge/openapi.test.ts holds the two together.
const document = openApiDocument(allOperations(settings.SERVICE_ID_FIELD.default));
mkdirSync(join(packageRoot, 'docs'), { recursive: true });
writeFileSync(join(packageRoot, 'docs/openapi.json'), `${JSON.stringify(document, null, 2)}\n`);
