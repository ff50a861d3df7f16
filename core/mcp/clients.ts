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

  /** @param changed called when tools have come, changed or gone */
  take(name: string, settings: McpClientManifest, changed: () => void): McpClient {
    const key = keyOf(name, settings);
    const known = this.#shared.get(key);
    if (known !== undefined) {
      known.users.add(changed);
      return known.client;
    }
    const users = new Set([changed]);
    const client = new McpClient(name, settings, {
      ...this.#options,
      prepare: createClientSchemas("input"),
      changed: () => {
        for (const user of [...users]) user();
      },
    });
    this.#shared.set(key, { client, users });
    return client;
  }

  /** Closes the client with its last user. */
  async release(name: string, settings: McpClientManifest, changed: () => void): Promise<void> {
    const key = keyOf(name, settings);
    const known = this.#shared.get(key);
    if (known === undefined || !known.users.delete(changed) || known.users.size > 0) return;
    this.#shared.delete(key);
    await known.client.close();
  }
}

const keyOf = (name: string, settings: McpClientManifest): string => JSON.stringify([name, settings]);
