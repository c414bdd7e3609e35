import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { packagesPage } from '../supply/packages.ts';
import { alertsFile, runbookPage } from './alerts.ts';
import { citusForms } from './citus-forms.ts';
import { commandLinePage } from './command-line.ts';
import { dataModelDiagrams, dataModelPage } from './data-model.ts';
import { errorsPage } from './errors.ts';
import { metricsPage } from './metrics.ts';
import { permissionsPage } from './permissions.ts';
import { rateLimitsPage } from './rate-limits.ts';
import { envExample, settingsPage } from './settings.ts';
import { stableFile } from './stable-names.ts';
import { vendorRulesPage } from './vendor-rules.ts';

// Pages of the settings in src/platform/settings.ts. test/config.rules.test.ts compares them with the settings.
writeFileSync(path.join(packageRoot, '.env.example'), envExample());
mkdirSync(path.join(packageRoot, 'docs'), { recursive: true });
writeFileSync(path.join(packageRoot, 'docs/settings.md'), settingsPage());
// The page of the error codes in src/errors.ts. test/edge/error-codes.rules.test.ts compares the two.
writeFileSync(path.join(packageRoot, 'docs/errors.md'), errorsPage());
// Reference pages. test/docs/reference.rules.test.ts compares them with the program.
writeFileSync(path.join(packageRoot, 'docs/command-line.md'), await commandLinePage());
writeFileSync(path.join(packageRoot, 'docs/metrics.md'), metricsPage());
writeFileSync(path.join(packageRoot, 'docs/permissions.md'), permissionsPage());
writeFileSync(path.join(packageRoot, 'docs/rate-limits.md'), rateLimitsPage());
writeFileSync(path.join(packageRoot, 'docs/vendor-rules.md'), vendorRulesPage());
// The alert rules and the parts of the runbook about them, from src/checks. test/checks/documents.rules.test.ts compares them.
writeFileSync(path.join(packageRoot, 'monitoring/alerts.yml'), alertsFile());
const runbook = path.join(packageRoot, 'docs/runbook.md');
writeFileSync(runbook, runbookPage(readFileSync(runbook, 'utf8')));
// The tables of prisma/schema.prisma: a part of the page, and diagrams. test/docs/reference.rules.test.ts compares them.
const dataModel = path.join(packageRoot, 'docs/data-model.md');
writeFileSync(dataModel, dataModelPage(readFileSync(dataModel, 'utf8')));
for (const [name, diagram] of dataModelDiagrams())
  writeFileSync(path.join(packageRoot, 'docs/pictures', name), diagram);
// The list of the production packages in package-lock.json. test/supply/packages.rules.test.ts compares the two.
mkdirSync(path.join(packageRoot, 'generated'), { recursive: true });
writeFileSync(path.join(packageRoot, 'generated/packages.md'), packagesPage());
// The forms of statements for Citus. test/store/distributed/one-workspace.rules.test.ts compares them with the store.
writeFileSync(path.join(packageRoot, 'generated/citus-forms.json'), await citusForms());
// The names that docs/stability.md calls stable. A name is added, and never removed: test/upgrade/stable.rules.test.ts fails for
// a name of the list that no longer exists.
const stable = path.join(packageRoot, 'test/upgrade/stable.json');
writeFileSync(stable, await stableFile(readFileSync(stable, 'utf8')));
