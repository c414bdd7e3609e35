import { movedWorkspace } from '../../tools/chaos/scenarios/31-moved-workspace.ts';
import { shortForms } from './short-form.ts';

// Shards of one Redis; a workspace moves between them.
shortForms('redis', [movedWorkspace]);
