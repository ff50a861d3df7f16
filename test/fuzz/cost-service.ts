/** What a service is asked in the search for costly requests: found in what it says of itself, so that new rows are in it. */

import { METHODS } from "../../core/a2a/params.ts";
import { inject } from "../support/inject.ts";
import { injectUpgrade } from "../support/inject-upgrade.ts";
import { schemas } from "../support/schemas.ts";
import type { TestService } from "../support/service.ts";
import { type Growth, growthsOf } from "./growing-values.ts";
import type { Json, Resolve, Schema } from "./schema-values.ts";

export const MANIFEST = {
  name: "Cost",
  version: "1.0.0",
  store: "memory:",
  logs: { level: "info" },
  providers: { demo: { use: "scripted", chunks: 4 } },
  memory: { default: { workingMemory: { format: "markdown" } } },
  agents: {
    assistant: {
      name: "Assistant",
      description: "Repeats",
      instructions: "Repeat.",
      model: "demo/echo",
      tools: ["note"],
    },
  },
  tools: {
    note: {
      description: "Takes notes",
      parameters: {
        type: "object",
        properties: {
          notes: { type: "array", items: { $ref: "#/$defs/note" } },
          tags: { type: "array", uniqueItems: true },
          byName: { type: "object", additionalProperties: { $ref: "#/$defs/note" } },
        },
        required: ["notes"],
        $defs: {
          note: {
            type: "object",
            properties: { text: { type: "string" }, notes: { type: "array", items: { $ref: "#/$defs/note" } } },
            required: ["text"],
          },
        },
      },
      http: { method: "GET", url: "http://127.0.0.1:1/", retries: 0, timeout: "1s" },
    },
  },
  workflows: {
    anything: { name: "Anything", steps: [{ id: "count", andThen: { set: { given: "{{ input }}" } } }] },
    flow: {
      name: "Flow",
      input: {
        type: "object",
        properties: { lines: { type: "array", items: { anyOf: [{ type: "string" }, { type: "number" }] } } },
        required: ["lines"],
      },
      steps: [{ id: "count", andThen: { set: { many: "{{ size(input.lines) }}" } } }],
    },
  },
  mcp: { servers: { main: { name: "Main", tools: ["note"], agents: ["assistant"], workflows: ["flow"] } } },
  routes: [{ use: "hello" }, { use: "delivery" }],
};

/** What may be asked with a body or a query that grows. */
export interface Asked {
  readonly title: string;
  readonly growths: () => Iterable<Growth>;
  /** Asks it, with the text of a growth, and reads the reply to its end. */
  send(text: string): Promise<unknown>;
}

/** Ids of what exists, by the names that parameters and properties have for them. */
const NAMES: Readonly<Record<string, Json>> = {
  id: "assistant",
  agentId: "assistant",
  userId: "ada",
  conversationId: "main",
  workflowId: "anything",
  serverId: "main",
  name: "note",
  toolName: "note",
  executionId: "x",
  stepId: "count",
  schema: { type: "object" },
};

interface Operation {
  operationId: string;
  parameters?: { name: string; in: string; required?: boolean; schema: Schema; example?: unknown }[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
  "x-websockets": { path: string; parameters: { name: string }[] }[];
}

const lastOf = (reference: string): string => reference.slice(reference.lastIndexOf("/") + 1);

export async function askable(service: TestService): Promise<Asked[]> {
  const document = (await read(service, "/doc")) as Document;
  const resolve: Resolve = (reference) => document.components.schemas[lastOf(reference)]!;
  const rows = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path: filled(path, operation), method, operation })),
  );
  return [
    ...rows.flatMap(({ path, method, operation }) => [
      ...bodyOf(service, { path, method, operation }, resolve),
      ...queryOf(service, { path, method, operation }),
    ]),
    ...(await toolInputs(service)),
    ...peerMethods(service),
    ...(await mcpCalls(service)),
    ...document["x-websockets"].map((socket) => socketOf(service, socket)),
  ];
}

async function read(service: TestService, path: string): Promise<unknown> {
  return (await inject(service.dispatch, { path })).json();
}

function filled(path: string, { parameters = [] }: Operation): string {
  const [first] = path.slice(1).split("/");
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const example = parameters.find((each) => each.in === "path" && each.name === name)?.example;
    return String(example ?? (name === "id" && first === "workflows" ? "anything" : (NAMES[name] ?? "x")));
  });
}

interface Row {
  path: string;
  method: string;
  operation: Operation;
}

function bodyOf(service: TestService, { path, method, operation }: Row, resolve: Resolve): Asked[] {
  const schema = operation.requestBody?.content["application/json"]?.schema;
  if (schema === undefined) return [];
  const growths = () => growthsOf(schema, resolve, NAMES);
  return [{ title: `${method.toUpperCase()} ${path}`, growths, send: (body) => post(service, path, body, method) }];
}

const post = (
  service: TestService,
  path: string,
  body: string,
  method = "post",
  headers: Record<string, string> = {},
) => inject(service.dispatch, { method, path, body, headers: { "content-type": "application/json", ...headers } });

/** Values of a query are texts, as long as a head may be; names that nobody knows, and the same one again and again. */
function queryOf(service: TestService, { path, method, operation }: Row): Asked[] {
  const parameters = (operation.parameters ?? []).filter((each) => each.in === "query");
  if (parameters.length === 0) return [];
  const name = parameters[0]!.name;
  const growths = (): Growth[] => [
    ...parameters.flatMap(({ name }) =>
      ["a", "%20", "7", "%7B", "+", "%"].map((letters) => ({
        title: `?${name}= ${letters} repeated`,
        text: (size: number) => `${name}=${letters.repeat(size / letters.length)}`,
      })),
    ),
    { title: "names that nobody knows", text: (size) => Array.from({ length: size / 4 }, (_, n) => `${n}=`).join("&") },
    { title: `${name} again and again`, text: (size) => `${name}=a&`.repeat(size / (name.length + 3)) },
    {
      title: "metadata by key",
      text: (size) => Array.from({ length: size / 16 }, (_, n) => `metadata.${n}=1`).join("&"),
    },
  ];
  const title = `${method.toUpperCase()} ${path}?`;
  return [{ title, growths, send: (query) => inject(service.dispatch, { method, path: `${path}?${query}` }) }];
}

/** Tools and workflows take what their own schemas say. */
async function toolInputs(service: TestService): Promise<Asked[]> {
  const { data: tools } = (await read(service, "/tools")) as { data: { name: string; parameters: Schema }[] };
  const { data: workflows } = (await read(service, "/workflows")) as { data: { id: string }[] };
  const inputs = tools.map(({ name, parameters }) => ({ path: `/tools/${name}/execute`, schema: parameters }));
  for (const { id } of workflows) {
    const { data } = (await read(service, `/workflows/${id}`)) as { data: { inputSchema: Schema | null } };
    if (data.inputSchema !== null) inputs.push({ path: `/workflows/${id}/execute`, schema: data.inputSchema });
  }
  return inputs.map(({ path, schema }) => ({
    title: `POST ${path}, input`,
    growths: () => growthsOf(schema, within(schema)),
    send: (input) => post(service, path, `{"input":${input}}`),
  }));
}

/** References inside a schema that stands for itself. */
const within =
  (schema: Schema): Resolve =>
  (reference) =>
    reference === "#" ? schema : (schema.$defs as Record<string, Schema>)[lastOf(reference)]!;

function peerMethods(service: TestService): Asked[] {
  return Object.entries(METHODS).flatMap(([version, methods]) =>
    Object.entries(methods).map(([method, schema]) => ({
      title: `POST /a2a/:id, ${method}`,
      growths: () => growthsOf(schema === null ? {} : schemas[schema]!, (reference) => schemas[lastOf(reference)]!),
      send: (text: string) => {
        const head = `{"jsonrpc":"2.0","id":1,"method":${JSON.stringify(method)}`;
        const body = text.startsWith('{"') ? `${head},${text.slice(1)}` : `${head},"params":${text}}`;
        return post(service, "/a2a/assistant", body, "post", { "a2a-version": version });
      },
    })),
  );
}

interface McpReply {
  result: { tools: { name: string; inputSchema: Schema }[] };
}

async function mcpCalls(service: TestService): Promise<Asked[]> {
  const accept = { accept: "application/json, text/event-stream" };
  const path = "/mcp/main/mcp";
  const list = await post(service, path, '{"jsonrpc":"2.0","id":1,"method":"tools/list"}', "post", accept);
  const { result } = JSON.parse(list.text().replace(/^[^{]*/, "")) as McpReply;
  return result.tools.map(({ name, inputSchema }) => ({
    title: `POST ${path}, tools/call ${name}`,
    growths: () => growthsOf(inputSchema, within(inputSchema)),
    send(given) {
      const params = `{"name":${JSON.stringify(name)},"arguments":${given}}`;
      return post(service, path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`, "post", accept);
    },
  }));
}

/** Messages on a socket: an object with what its query takes, and anything else. */
function socketOf(service: TestService, { path, parameters }: Document["x-websockets"][number]): Asked {
  const texts = parameters.map(({ name }) => [name, { type: "string" }]);
  const schema = { type: "object", properties: { type: { type: "string" }, ...Object.fromEntries(texts) } };
  const open = path.replace("/**", "");
  const socket = injectUpgrade(service.upgrade, { path: open, headers: {} }).then((reply) => reply.socket!);
  return {
    title: `WS ${open}, messages`,
    growths: () => growthsOf({ anyOf: [schema, {}] }, (reference) => schemas[lastOf(reference)]!),
    async send(text) {
      const peer = await socket;
      peer.received.length = 0;
      peer.send(text);
    },
  };
}
