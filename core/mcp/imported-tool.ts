/** A tool of a foreign MCP server as a tool of this service, whether the server has been reached yet or not. */

import type { JsonSchema } from "../lib/json-schema.ts";
import type { ToolMeter } from "../observability/metrics/named.ts";
import type { ConfiguredCall, Tool } from "../tools/tool.ts";
import type { McpClient } from "./client.ts";

/** For a tool that its server has not described yet. */
const ANYTHING: JsonSchema = { type: "object" };

export class ImportedTool implements Tool {
  readonly name: string;
  readonly tags: readonly string[];
  readonly approval = false as const;
  readonly timeout: number;
  readonly config = {};
  readonly changes = true;
  readonly meter: ToolMeter | undefined;
  readonly #client: McpClient;
  /** Without the prefix of the client. */
  readonly #short: string;

  constructor(client: McpClient, short: string, meter?: ToolMeter) {
    this.name = `${client.name}_${short}`;
    this.tags = [client.name];
    this.timeout = client.timeout;
    this.#client = client;
    this.#short = short;
    this.meter = meter;
  }

  /** As its server has listed it last. */
  get #tool() {
    return this.#client.tools.get(this.#short);
  }

  get description(): string {
    return this.#tool?.description ?? "";
  }

  get parameters(): JsonSchema {
    return this.#tool?.parameters ?? ANYTHING;
  }

  get shown(): object | undefined {
    return this.#tool?.shown;
  }

  get available(): boolean {
    return this.#client.connected && this.#tool !== undefined;
  }

  validate(input: unknown): string | null {
    return this.#tool?.validate(input) ?? null;
  }

  run(input: unknown, call: ConfiguredCall): Promise<unknown> {
    return this.#client.call(this.#short, input as Record<string, unknown>, call);
  }
}
