/** A column of a model. Relation fields are `Relation`s. */
export interface Column {
  /** Name in the database. */
  name: string;
  /** Type with its `@db` attribute, for example `String @db.Uuid`. */
  type: string;
  isList: boolean;
  isOptional: boolean;
  hasDefault: boolean;
  comment: string;
}

/** An index or a unique constraint. The columns are named as in the database. */
export interface Index {
  name: string;
  isUnique: boolean;
  columns: string[];
}

/** A relation, which is a foreign key of the database. The columns are named as in the database. */
export interface Relation {
  columns: string[];
  /** Name of the model that the relation leads to. */
  model: string;
  onDelete: string;
  comment: string;
}

/** A table or a view of prisma/schema.prisma. */
export interface Model {
  name: string;
  /** Name in the database. */
  table: string;
  isView: boolean;
  /** Title of the part of the file. */
  group: string;
  /** The sentences above the model. */
  comment: string;
  columns: Column[];
  primaryKey: string[];
  indexes: Index[];
  relations: Relation[];
}

/** A field as it is written: name, type and attributes. */
interface Line {
  name: string;
  type: string;
  attributes: string;
  comment: string;
}

const listed = (names: string) => names.split(/,\s*/).map((name) => name.replace(/\(.*$/, ''));

/** Returns the value of `key: value` in an attribute. */
const argument = (attribute: string, key: string) =>
  new RegExp(`\\b${key}: "?([\\w ]+)"?`).exec(attribute)?.[1];

/**
 * Reads the models and views of a formatted Prisma schema.
 *
 * @throws {Error} for a field of an unknown type
 */
export function readPrismaSchema(text: string): Model[] {
  const blocks = [
    ...text.matchAll(/^\/\/ ---- (.+)$|^((?:\/\/\/.*\n)*)(model|view) (\w+) \{\n([\s\S]*?)^\}/gm),
  ];
  const models = new Set(blocks.map(([, , , , name]) => name));
  let group = '';
  return blocks.flatMap(([, title, comment, kind, name, body]) => {
    if (title !== undefined) group = title;
    if (name === undefined) return [];
    return [{ ...readModel(name, body!, models), isView: kind === 'view', group, comment: plain(comment!) }];
  });
}

/** Joins the lines of a comment. */
const plain = (lines: string) =>
  lines
    .replace(/^\s*\/\/\/ ?/gm, '')
    .trim()
    .replaceAll('\n', ' ');

function readModel(name: string, body: string, models: ReadonlySet<string | undefined>) {
  const lines = [...body.matchAll(/^((?: {2}\/\/\/.*\n)*) {2}(\w+) +(\S+) *(.*)$/gm)].map(
    ([, comment, field, type, attributes]): Line => ({
      name: field!,
      type: type!,
      attributes: attributes!,
      comment: plain(comment!),
    }),
  );
  const blockAttributes = [...body.matchAll(/^ {2}@@(\w+)(?:\((.*)\))?$/gm)].map(([, kind, inner = '']) => ({
    kind: kind!,
    inner,
  }));
  const table = /"(\w+)"/.exec(blockAttributes.find(({ kind }) => kind === 'map')?.inner ?? '')?.[1] ?? name;
  const isRelation = ({ type }: Line) => models.has(type.replace(/\W/g, ''));
  const fields = lines.filter((line) => !isRelation(line));
  const columnOf = new Map(
    fields.map((line) => [line.name, /@map\("(\w+)"\)/.exec(line.attributes)?.[1] ?? line.name]),
  );
  const columnsOf = (names: string) => listed(names).map((field) => columnOf.get(field)!);
  const inBrackets = (inner: string) => columnsOf(/\[(.*?)\]/.exec(inner.replace(/\([^)]*\)/g, ''))![1]!);
  const indexes = blockAttributes.flatMap(({ kind, inner }): Index[] => {
    if (kind !== 'index' && kind !== 'unique') return [];
    const columns = inBrackets(inner);
    const suffix = kind === 'unique' ? 'key' : 'idx';
    const indexName = argument(inner, 'map') ?? [table, ...columns, suffix].join('_');
    return [{ name: indexName, isUnique: kind === 'unique', columns }];
  });
  const key = blockAttributes.find(({ kind }) => kind === 'id');
  return {
    name,
    table,
    columns: fields.map((line) => readColumn(line, columnOf.get(line.name)!)),
    primaryKey: key
      ? inBrackets(key.inner)
      : fields.filter(({ attributes }) => /@id\b/.test(attributes)).map((line) => columnOf.get(line.name)!),
    indexes: [
      ...fields.flatMap(({ name: field, attributes }): Index[] => {
        const unique = /@unique\b(\([^)]*\))?/.exec(attributes);
        const column = columnOf.get(field)!;
        if (!unique) return [];
        const indexName = argument(unique[1] ?? '', 'map') ?? `${table}_${column}_key`;
        return [{ name: indexName, isUnique: true, columns: [column] }];
      }),
      ...indexes,
    ],
    relations: lines.flatMap(({ type, attributes, comment }): Relation[] => {
      const fieldsOf = /@relation\(fields: \[(.*?)\]/.exec(attributes);
      if (!fieldsOf) return [];
      const onDelete = argument(attributes, 'onDelete')!;
      return [{ columns: columnsOf(fieldsOf[1]!), model: type.replace(/\W/g, ''), onDelete, comment }];
    }),
  };
}

const SCALARS = ['String', 'Int', 'BigInt', 'Float', 'Decimal', 'Boolean', 'DateTime', 'Json', 'Bytes'];

function readColumn({ name: field, type, attributes, comment }: Line, name: string): Column {
  const [, scalar, suffix] = /^(\w+)(\[\]|\?)?$/.exec(type) ?? [];
  if (!SCALARS.includes(scalar!)) throw new Error(`field ${field} has the unknown type ${type}`);
  const native = /@db\.\w+/.exec(attributes)?.[0];
  return {
    name,
    type: native ? `${scalar} ${native}` : scalar!,
    isList: suffix === '[]',
    isOptional: suffix === '?',
    hasDefault: /@default\(/.test(attributes),
    comment,
  };
}

/** Returns the names of the models to which a comment says that the column refers. */
export function referencesOf(comment: string): string[] {
  const names = /\bRefers to ((?:\w+, )*\w+)\./.exec(comment)?.[1];
  return names === undefined ? [] : names.split(', ');
}
