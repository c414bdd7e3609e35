import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { settings } from '../../src/platform/config.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { parseProcfile } from '../../src/start/processes.ts';

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');
const procfile = parseProcfile(read('Procfile'));
const folder = 'deploy/systemd';
const units = new Map(
  readdirSync(path.join(packageRoot, folder))
    .filter((file) => file.endsWith('.service'))
    .map((file) => [/^penstock-(\w+)@?\.service$/.exec(file)![1]!, read(path.join(folder, file))]),
);

/** Hardening options that each unit must have. */
const hardening =
  `DynamicUser=yes ProtectSystem=strict ProtectHome=yes PrivateTmp=yes PrivateDevices=yes NoNewPrivileges=yes
  RestrictNamespaces=yes RestrictSUIDSGID=yes LockPersonality=yes CapabilityBoundingSet= SystemCallFilter=@system-service UMask=0077`
    .split(/\s+/)
    .map((line) => `\n${line}\n`);

test('each line of the Procfile is a unit by its command, and belongs to penstock.target', () => {
  expect([...units.keys()].sort()).toEqual(procfile.map(({ name }) => name).sort());
  for (const { name, nodeArgs, file } of procfile) {
    const unit = units.get(name)!;
    expect(unit).toContain(`\nExecStart=/usr/bin/${['node', ...nodeArgs, file].join(' ')}\n`);
    expect(unit).toContain('\nPartOf=penstock.target\n');
    expect(unit).toContain('\nWantedBy=penstock.target\n');
  }
});

test('units run as non-root, and write only to folders of their own', () => {
  const folders = new Set<string>();
  for (const [name, unit] of units) {
    for (const line of hardening) expect(unit, name).toContain(line);
    const [, state] = /\nStateDirectory=(\S+)\n/.exec(unit)!;
    expect(unit).toContain(`\nEnvironment=DATA_DIR=/var/lib/${state}\n`);
    folders.add(state!);
  }
  expect(folders.size).toBe(units.size);
});

test('each process is restarted, and has time to stop with the delay of docs/deploy.md', () => {
  for (const [name, unit] of units) {
    if (name === 'release') continue;
    expect(unit).toContain('\nRestart=always\n');
    expect(unit).toContain('\nLimitNOFILE=65536\n');
    const [, seconds] = /\nTimeoutStopSec=(\d+)\n/.exec(unit)!;
    expect(Number(seconds) * 1000).toBeGreaterThan(10_000 + settings.SHUTDOWN_TIMEOUT_MS.default);
  }
});
