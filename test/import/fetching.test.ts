import { statSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openInputs } from '../../src/import/open-inputs.ts';
import { readConfig } from '../../src/platform/config.ts';
import { reachOfSources } from '../../src/platform/reach.ts';
import { type Step, unwatched } from '../../src/platform/steps.ts';
import { startS3 } from '../integrations/s3.ts';
import { fileOf } from './scene.ts';

test('progress is reported up to the last byte of fetching an object, then of checking it', async () => {
  const { endpoint, credentials, fill } = await startS3();
  const bucket = await fill(path.dirname(fileOf('1.csv', 'external_id,name,time\n')), 'exports/');
  const steps: (Step & { moved: number })[] = [];
  const opened = openInputs(`s3://${bucket}/exports/1.csv`, {
    ...{ scratchBytes: 1_000_000, leaving: new AbortController().signal },
    reach: reachOfSources(readConfig({ REFUSED_NETWORKS: 'none' })),
    accessTo: async () => ({ region: 'us-east-1', endpoint, credentials }),
    watcher: {
      ...unwatched,
      begin: (step) => void steps.push({ ...step, moved: 0 }),
      move(more) {
        steps.at(-1)!.moved += more;
      },
    },
  });
  for await (const { name, path: fetched } of opened) {
    const { size } = statSync(fetched);
    expect(steps).toEqual([
      { name, doing: 'fetching', of: 'bytes', total: size, moved: size },
      { name, doing: 'checking', of: 'bytes', total: size, moved: size },
    ]);
  }
  expect(steps).toHaveLength(2);
});
