import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../src/platform/files.ts';

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');
const exists = (file: string) => existsSync(path.join(packageRoot, file));
const guides = readdirSync(path.join(packageRoot, 'docs')).filter((name) => name.endsWith('.md'));
const decisions = readdirSync(path.join(packageRoot, 'docs/adr')).filter((name) => /^\d{4}-/.test(name));
const documents = [
  ...['README.md', 'SECURITY.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'docs/adr/README.md'],
  ...guides.map((name) => `docs/${name}`),
  ...decisions.map((name) => `docs/adr/${name}`),
];

/** Matches a file of this repository in a text; a name with a placeholder matches several files. */
const OURS = /(?<![\w@/.-])(?:src|workers|test|scripts|docs|prisma|generated)\/[\w./*<{-]+/g;

/** Returns the anchor of a heading, as Markdown viewers make it. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

function anchorsIn(text: string): string[] {
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchorOf(heading!));
}

describe.each(documents)('%s', (document) => {
  const text = read(document);

  test('every file that it names exists', () => {
    const named = (text.match(OURS) ?? []).filter((name) => !/[*<{]/.test(name));
    expect(named.map((name) => name.replace(/\.+$/, '')).filter((name) => !exists(name))).toEqual([]);
  });

  test('every link has a target', () => {
    const links = [...text.matchAll(/\]\(((?!https?:)[^)\s]+)\)/g)].map(([, link]) => link!);
    const broken = links.filter((link) => {
      const [to, anchor] = link.split('#') as [string, string?];
      const target = to === '' ? document : path.posix.join(path.posix.dirname(document), to);
      return !exists(target) || (anchor !== undefined && !anchorsIn(read(target)).includes(anchor));
    });
    expect(broken).toEqual([]);
  });
});

describe('README.md', () => {
  const readme = read('README.md');

  test('has at most 110 lines', () => {
    expect(readme.split('\n').length - 1).toBeLessThanOrEqual(110);
  });

  test('shows the two commands', () => {
    expect(readme).toMatch(/^npm ci && npm start\b/m);
    expect(readme).toMatch(/^npm ci && npm test\b/m);
  });
});

test('docs/README.md links every guide', () => {
  const index = read('docs/README.md');
  expect(guides.filter((name) => name !== 'README.md' && !index.includes(`](${name})`))).toEqual([]);
});

describe('docs/adr', () => {
  test('README.md lists every decision record', () => {
    const index = read('docs/adr/README.md');
    expect(decisions.filter((name) => !index.includes(`](${name})`))).toEqual([]);
  });

  test.each(decisions)('%s has the sections of a decision record and at most 80 lines', (name) => {
    const record = read(`docs/adr/${name}`);
    expect(record).toMatch(/^# \S/);
    expect(record.match(/^## .+$/gm)).toEqual(['## Context', '## Decision', '## Consequences']);
    expect(record.split('\n').length).toBeLessThanOrEqual(80);
  });
});

describe('docs/architecture.md', () => {
  const page = read('docs/architecture.md');
  const section = (title: string) => page.split(/^## /m).find((part) => part.startsWith(title))!;

  test('names every module', () => {
    const named = section('The modules');
    const modules = ['src', 'workers'].flatMap((folder) =>
      readdirSync(path.join(packageRoot, folder), { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map(({ name }) => `${folder}/${name}`),
    );
    expect(modules.filter((name) => !named.includes(`\`${name}\``))).toEqual([]);
  });

  test('names the tests that prove each guarantee', () => {
    const rows = section('The guarantees').match(/^\| \*\*G\d\*\*.*$/gm) ?? [];
    expect(rows.map((row) => row.match(/G\d/)![0])).toEqual(
      Array.from({ length: 8 }, (_, index) => `G${index + 1}`),
    );
    for (const row of rows) expect(row).toMatch(/`test\/[\w./-]+\.test\.ts`/);
  });

  test('explains each word once, in alphabetical order', () => {
    const words = [...section('Glossary').matchAll(/^\| \*\*(.+?)\*\*/gm)].map(([, word]) => word!);
    expect(words).not.toEqual([]);
    expect(words).toEqual([...new Set(words)].sort((one, other) => (one < other ? -1 : 1)));
  });
});

test('generated JSON files of more than 1,000 lines are in generated, which diffs omit', () => {
  const byHand = ['monitoring/dashboard.json', 'package-lock.json'];
  const folders = ['monitoring', 'tools', 'deploy', 'docs', 'src', 'prisma', 'generated', '.'];
  const large = folders.flatMap((folder) =>
    readdirSync(path.join(packageRoot, folder), { recursive: folder !== '.', encoding: 'utf8' })
      .map((file) => path.posix.join(folder, file))
      .filter((file) => file.endsWith('.json') && read(file).split('\n').length > 1000),
  );
  expect(large).toContain('generated/openapi.json');
  expect(large.filter((file) => !file.startsWith('generated/')).sort()).toEqual(byHand);
  expect(read('.gitattributes')).toContain('generated/*.json -diff');
});
