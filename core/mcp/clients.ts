/** The clients of foreign MCP servers. Directories of tools share those with the same settings, so that a reload keeps the connection. */
import type { Logger } from "pino";
import { createClientSchemas } from "../client-schema/schemas.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { McpClient } from "./client.ts";

interface ClientsOptions {
  /** The working directory of servers that are commands. */
  readonly folder: string;
  readonly logger: Logger;
}

interface Shared {
  readonly client: McpClient;
  /** Told when tools have come, changed or gone; one for each directory. */
  readonly users: Set<() => void>;
}

export class McpClients {
  readonly #options: ClientsOptions;
  /** By name and settings. */
  readonly #shared = new Map<string, Shared>();

  constructor(options: ClientsOptions) {
    this.#options = options;
  }

  /**
   * @param changed called when tools have come, changed or gone
   * @returns the client, and what closes it with its last user
   */
  take(name: string, settings: McpClientManifest, changed: () => void) {
    const key = JSON.stringify([name, settings]);
    const shared = this.#shared.get(key) ?? this.#make(name, settings);
    const { client, users } = shared;
    this.#shared.set(key, shared);
    users.add(changed);
    const release = async () => {
      if (!users.delete(changed) || users.size > 0) return;
      this.#shared.delete(key);
      await client.close();
    };
    return { client, release };
  }

  #make(name: string, settings: McpClientManifest): Shared {
    const users: Shared["users"] = new Set();
    const changed = () => {
      for (const user of [...users]) user();
    };
    const client = new McpClient(name, settings, { ...this.#options, prepare: createClientSchemas("input"), changed });
    return { client, users };
  }
}
