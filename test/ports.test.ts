import { expect, test, vi } from 'vitest';

/** The helper as another process has it, which knows nothing of what this one has leased. */
async function anotherProcess() {
  vi.resetModules();
  return import('./setup/ports.ts');
}

test('no port is leased twice, by one process or by several at once', async () => {
  const processes = [await anotherProcess(), await anotherProcess(), await anotherProcess()];
  const ports = await Promise.all(
    processes.flatMap(({ leasePort }) => Array.from({ length: 120 }, () => leasePort())),
  );
  expect(new Set(ports).size).toBe(360);
});
