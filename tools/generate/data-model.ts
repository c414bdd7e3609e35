import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { type Column, type Model, readPrismaSchema, referencesOf } from './prisma-schema.ts';

/** Sizes of a diagram in pixels. */
const WIDTH = 940;
const COLUMNS = 3;
/** The order in which the columns are filled. */
const FILLED = [1, 0, 2];
const CARD_WIDTH = 272;
const GUTTER = (WIDTH - COLUMNS * CARD_WIDTH) / (COLUMNS + 1);
const HEAD = 26;
const ROW = 17;
const GAP = 22;

/** Short names of types that would not fit next to the name of a column. */
const shortTypes: Record<string, string> = {
  String: 'text',
  'String @db.Uuid': 'uuid',
  Int: 'integer',
  'Int @db.SmallInt': 'smallint',
  BigInt: 'bigint',
  Float: 'double',
  'Float @db.Real': 'real',
  'Decimal @db.Decimal': 'numeric',
  Boolean: 'boolean',
  'DateTime @db.Timestamptz': 'time',
  'DateTime @db.Date': 'date',
  Json: 'jsonb',
  'Json @db.Json': 'json',
  Bytes: 'bytea',
};

/** A row of a card: a column and the tables to which it refers. */
interface Row {
  column: Column;
  isKey: boolean;
  targets: string[];
}

interface Card {
  table: string;
  rows: Row[];
  x: number;
  y: number;
  height: number;
}

const schema = () => readPrismaSchema(readFileSync(path.join(packageRoot, 'prisma/schema.prisma'), 'utf8'));

function byGroup(models: Model[]): Map<string, Model[]> {
  const groups = new Map<string, Model[]>();
  for (const model of models) groups.set(model.group, [...(groups.get(model.group) ?? []), model]);
  return groups;
}

const slugOf = (group: string) => group.toLowerCase().replace(/[^a-z]+/g, '-');

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

/** Returns the diagrams of the data model, one for each group of tables, by the name of the file. */
export function dataModelDiagrams(): Map<string, string> {
  const models = schema();
  const tableOf = new Map(models.map(({ name, table }) => [name, table]));
  const groups = byGroup(models);
  return new Map(
    [...groups].map(([group, members]) => [
      `data-model-${slugOf(group)}.svg`,
      diagram(group, place(members, tableOf)),
    ]),
  );
}

/**
 * Puts each card into the column that is shortest so far, in the order of the schema. The first table is in the middle,
 * because most others refer to it.
 */
function place(models: Model[], tableOf: ReadonlyMap<string, string>): Card[] {
  const ends = new Array<number>(COLUMNS).fill(GAP);
  return models.map((model) => {
    const rows = model.columns.map((column) => ({
      column,
      isKey: model.primaryKey.includes(column.name),
      targets: targetsOf(model, column).map((name) => tableOf.get(name)!),
    }));
    const column = FILLED.reduce((shortest, other) => (ends[other]! < ends[shortest]! ? other : shortest));
    const height = HEAD + rows.length * ROW + 6;
    const card = {
      ...{ table: model.table, rows, height },
      ...{ x: GUTTER + column * (CARD_WIDTH + GUTTER), y: ends[column]! },
    };
    ends[column] = card.y + height + GAP;
    return card;
  });
}

/** Models to which a column refers. The workspace is omitted, because almost every table has it. */
function targetsOf({ relations }: Model, { name, comment }: Column): string[] {
  if (name === 'workspace_id') return [];
  return [
    ...relations.filter(({ columns }) => columns.includes(name)).map(({ model }) => model),
    ...referencesOf(comment),
  ];
}

function diagram(group: string, cards: Card[]): string {
  const height = Math.max(...cards.map((card) => card.y + card.height)) + GAP;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escaped(group)}: tables and columns">
<style>
svg{--paper:#fff;--ink:#1f2328;--faint:#57606a;--line:#8c959f;--box:#f6f8fa;--link:#0969da}
@media (prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#9198a1;--line:#656c76;--box:#161b22;--link:#4493f8}}
.paper{fill:var(--paper)}
text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:var(--ink)}
.name{font-weight:600;font-size:13px}.key{font-weight:600}.type{fill:var(--faint);text-anchor:end}.to{fill:var(--link);text-anchor:end}
.box{fill:var(--box);stroke:var(--line)}.line{fill:none;stroke:var(--link);stroke-opacity:.55}.dot{fill:var(--link)}
</style>
<rect class="paper" width="100%" height="100%"/>
${linesOf(cards).join('\n')}
${cards.map(cardOf).join('\n')}
</svg>
`;
}

function cardOf({ table, rows, x, y, height }: Card): string {
  const right = x + CARD_WIDTH - 8;
  return [
    `<rect class="box" x="${x}" y="${y}" width="${CARD_WIDTH}" height="${height}" rx="5"/>`,
    `<text class="name" x="${x + 8}" y="${y + 18}">${table}</text>`,
    `<path class="line" d="M${x} ${y + HEAD}H${x + CARD_WIDTH}"/>`,
    ...rows.flatMap(({ column, isKey, targets }, index) => {
      const at = y + HEAD + index * ROW + 14;
      const type = `${shortTypes[column.type]}${column.isList ? '[]' : ''}${column.isOptional ? '?' : ''}`;
      return [
        `<text${isKey ? ' class="key"' : ''} x="${x + 8}" y="${at}">${column.name}</text>`,
        targets.length === 0
          ? `<text class="type" x="${right}" y="${at}">${type}</text>`
          : `<text class="to" x="${right}" y="${at}">→ ${shortened(targets)}</text>`,
      ];
    }),
  ].join('\n');
}

/** A card has no room for more than one long name or two short names. */
function shortened(targets: string[]): string {
  const text = targets.join(', ');
  return text.length <= 26 || targets.length === 1 ? text : `${targets[0]}, …`;
}

/**
 * Returns the lines from columns to the tables to which they refer, in the gaps between the columns of cards. Lines to one
 * table share a way. A line across a whole column is omitted: its row names the table.
 */
function linesOf(cards: Card[]): string[] {
  const byTable = new Map(cards.map((card, index) => [card.table, { card, index }]));
  return cards.flatMap((from) =>
    from.rows.flatMap(({ targets }, row) => {
      return targets.flatMap((target) => {
        const found = byTable.get(target);
        if (!found || found.card === from || Math.abs(found.card.x - from.x) > CARD_WIDTH + GUTTER + 1)
          return [];
        const { card, index } = found;
        const isLeft = card.x < from.x;
        const startX = isLeft ? from.x : from.x + CARD_WIDTH;
        const endX = card.x <= from.x ? card.x + CARD_WIDTH : card.x;
        const gap = isLeft ? from.x - GUTTER : from.x + CARD_WIDTH;
        const way = gap + 6 + ((index * 5) % (GUTTER - 12));
        const startY = from.y + HEAD + row * ROW + 10;
        const endY = card.y + 13;
        return [
          `<path class="line" d="M${startX} ${startY}H${way}V${endY}H${endX}"/><circle class="dot" cx="${endX}" cy="${endY}" r="3"/>`,
        ];
      });
    }),
  );
}

const MARKS = [
  '<!-- begin: tables, generated from prisma/schema.prisma -->',
  '<!-- end: tables -->',
] as const;

const cell = (text: string) => text.replaceAll('|', '\\|');

/** Returns the definition of a row from the comment of a model, with the names of the database. */
function rowOf({ comment }: Model, tableOf: ReadonlyMap<string, string>): string {
  return comment
    .replace(/ (?:Partitioned|Read \w+ instead|Index(?:es)? in the migrations).*$/, '')
    .replace(/\b(?:[A-Z][a-z]+){2,}\b/g, (name) => (tableOf.has(name) ? `\`${tableOf.get(name)}\`` : name))
    .replace(/`[a-z]+(?:[A-Z][a-z]+)+`/g, (name) =>
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    );
}

/** Returns the text of docs/data-model.md with its generated part replaced. */
export function dataModelPage(text: string): string {
  const [begin, end] = MARKS;
  const [before, rest] = text.split(`${begin}\n`);
  const after = rest?.split(`\n${end}`)[1];
  if (after === undefined) throw new Error(`docs/data-model.md has no part between ${begin} and ${end}`);
  const models = schema();
  const tableOf = new Map(models.map(({ name, table }) => [name, table]));
  const parts = [...byGroup(models)].map(
    ([group, members]) => `### ${group}

![${group}: tables with their columns, and lines to the tables to which they refer](pictures/data-model-${slugOf(group)}.svg)

| ${members[0]!.isView ? 'View' : 'Table'} | A row is |
| --- | --- |
${members.map((model) => `| \`${model.table}\` | ${cell(rowOf(model, tableOf))} |`).join('\n')}`,
  );
  return `${before}${begin}\n\n${parts.join('\n\n')}\n\n${end}${after}`;
}
