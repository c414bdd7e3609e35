import { expect, test, vi } from 'vitest';

/** Imports the helper again, as another process would, without the state of this one. */
async function anotherProcess() {
  vi.resetModules();
  return import('./setup/ports.ts');
}

test('each port is leased once, by one process or by several at the same time', async () => {
  const processes = [await anotherProcess(), await anotherProcess(), await anotherProcess()];
  const ports = await Promise.all(
    processes.flatMap(({ leasePort }) => Array.from({ length: 120 }, () => leasePort())),
  );
  expect(new Set(ports).size).toBe(360);
});
