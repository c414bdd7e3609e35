import { expect, test } from 'vitest';
import { DownloadSlots } from '../../src/edge/download-slots.ts';

test('while others wait, the slowest download of a workspace above its share is cut', async () => {
  let now = 0;
  const slots = new DownloadSlots(() => now);
  const cut: string[] = [];
  /** Starts a download that lasts until it is cut. */
  const start = (owner: string, name: string, taken: number) => {
    let end = () => {};
    const download = {
      taken: () => taken,
      cut: () => {
        cut.push(name);
        end();
      },
    };
    return new Promise<void>((started) => {
      void slots
        .use(owner, download, () => {
          started();
          return new Promise<void>((resolve) => {
            end = resolve;
          });
        })
        .catch(() => {});
    });
  };
  for (let index = 0; index < 8; index++) {
    await start('first', `first-${index}`, 1000 + index);
    await start('second', `second-${index}`, 100_000_000);
  }
  expect(cut).toEqual([]);
  now = 10_000;
  await start('third', 'third-0', 0);
  expect(cut).toEqual(['first-0']);
  // With three workspaces, the share of each is five. The downloads of the second workspace are fast and are never
  // cut.
  await start('third', 'third-1', 0);
  await start('third', 'third-2', 0);
  expect(cut).toEqual(['first-0', 'first-1', 'first-2']);
});
