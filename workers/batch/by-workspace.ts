import type { Identifier } from '../../src/profile/identifier.ts';

/** A map by workspace and name. It nests maps, because a joined key would be built and hashed for each lookup. */
export class ByWorkspace<Value, Name = string> {
  readonly #workspaces = new Map<string, Map<Name, Value>>();

  get(workspaceId: string, name: Name): Value | undefined {
    return this.#workspaces.get(workspaceId)?.get(name);
  }

  has(workspaceId: string, name: Name): boolean {
    return this.#workspaces.get(workspaceId)?.has(name) ?? false;
  }

  set(workspaceId: string, name: Name, value: Value): void {
    const values = this.#workspaces.get(workspaceId);
    if (values) values.set(name, value);
    else this.#workspaces.set(workspaceId, new Map([[name, value]]));
  }

  *values(): Iterable<Value> {
    for (const values of this.#workspaces.values()) yield* values.values();
  }
}

export type Kind = 'external_id' | 'user_alias' | 'service_id' | 'email' | 'phone';

/** Values of one workspace, by kind and text of an identifier. */
type Tables<Value> = Record<Kind, Map<string, Value>>;

/**
 * A map by workspace and identifier, so that workspaces never share an entry. It has a table per workspace and kind,
 * because a joined key would be built and hashed for each lookup.
 */
export class ByIdentifier<Value> {
  readonly #workspaces = new Map<string, Tables<Value>>();
  /** Cache of the last lookup, since objects of a request are adjacent. */
  #last: { workspaceId: string; tables: Tables<Value> } | undefined;

  get(workspaceId: string, identifier: Identifier): Value | undefined {
    const tables = this.#tables(workspaceId);
    return tables && tableOf(tables, identifier).get(textOf(identifier));
  }

  has(workspaceId: string, identifier: Identifier): boolean {
    return this.get(workspaceId, identifier) !== undefined;
  }

  set(workspaceId: string, identifier: Identifier, value: Value): void {
    const tables = this.#tables(workspaceId) ?? this.#begin(workspaceId);
    tableOf(tables, identifier).set(textOf(identifier), value);
  }

  *values(): Iterable<Value> {
    for (const tables of this.#workspaces.values())
      for (const table of Object.values(tables)) yield* table.values();
  }

  #tables(workspaceId: string): Tables<Value> | undefined {
    if (this.#last?.workspaceId === workspaceId) return this.#last.tables;
    const tables = this.#workspaces.get(workspaceId);
    if (tables) this.#last = { workspaceId, tables };
    return tables;
  }

  #begin(workspaceId: string): Tables<Value> {
    const tables: Tables<Value> = {
      external_id: new Map(),
      user_alias: new Map(),
      service_id: new Map(),
      email: new Map(),
      phone: new Map(),
    };
    this.#workspaces.set(workspaceId, tables);
    return tables;
  }
}

export function kindOf(identifier: Identifier): Kind {
  if ('external_id' in identifier) return 'external_id';
  if ('user_alias' in identifier) return 'user_alias';
  if ('service_id' in identifier) return 'service_id';
  return 'email' in identifier ? 'email' : 'phone';
}

function tableOf<Value>(tables: Tables<Value>, identifier: Identifier): Map<string, Value> {
  return tables[kindOf(identifier)];
}

/** Returns a text that is unique among the identifiers of one kind. */
function textOf(identifier: Identifier): string {
  if ('external_id' in identifier) return identifier.external_id;
  if ('user_alias' in identifier)
    return `${identifier.user_alias.alias_label}\0${identifier.user_alias.alias_name}`;
  if ('service_id' in identifier) return identifier.service_id;
  return 'email' in identifier ? identifier.email : identifier.phone;
}
