/** The plugins of a service, by kind and name. Filled at boot and never changed afterwards. */
import type { PluginKind, PluginKinds } from "../plugin/plugin.ts";

export interface RegistryEntry<K extends PluginKind = PluginKind> {
  readonly kind: K;
  readonly name: string;
  /** Absolute path of the file; empty for a built-in plugin. */
  readonly file: string;
  readonly plugin: PluginKinds[K];
}

export class Registry {
  readonly #entries: ReadonlyMap<string, RegistryEntry>;
  /** Absolute paths of the folders that contain plugins and their helpers. */
  readonly folders: readonly string[];

  /** @param entries unique by kind and name */
  constructor(entries: readonly RegistryEntry[], folders: readonly string[] = []) {
    this.folders = folders;
    this.#entries = new Map(entries.map((entry) => [registryKey(entry), entry]));
  }

  get<K extends PluginKind>(kind: K, name: string): PluginKinds[K] | undefined {
    return this.entry(kind, name)?.plugin;
  }

  entry<K extends PluginKind>(kind: K, name: string): RegistryEntry<K> | undefined {
    return this.#entries.get(registryKey({ kind, name })) as RegistryEntry<K> | undefined;
  }

  /** Sorted names. */
  names(kind: PluginKind): readonly string[] {
    return [...this.#entries.values()]
      .filter((entry) => entry.kind === kind)
      .map((entry) => entry.name)
      .sort();
  }
}

export const registryKey = ({ kind, name }: Pick<RegistryEntry, "kind" | "name">) => `${kind} ${name}`;
