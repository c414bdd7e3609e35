import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openApiDocument } from '../../src/edge/openapi.ts';
import { allOperations } from '../../src/operations/index.ts';
import { settings } from '../../src/platform/config.ts';
import { packageRoot } from '../../src/platform/files.ts';

// Writes generated/openapi.json, which is the document of /openapi.json with the default settings.
// test/edge/openapi.rules.test.ts compares the two.
const document = openApiDocument(allOperations(settings.SERVICE_ID_FIELD.default));
mkdirSync(join(packageRoot, 'generated'), { recursive: true });
writeFileSync(join(packageRoot, 'generated/openapi.json'), `${JSON.stringify(document, null, 2)}\n`);
