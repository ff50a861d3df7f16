/**
 * A client for the conformance suite: a Penstock whose foreign MCP server is the last argument, and that calls every tool of it. What it
 * is given is in the environment, or is made of the schema of the tool.
 */
import { startService } from "../support/service.ts";

const { MCP_CONFORMANCE_CONTEXT: context = "{}" } = process.env;
const { toolCalls = [] } = JSON.parse(context) as { toolCalls?: { name: string; arguments: object }[] };
const ends: (() => unknown)[] = [];
const service = await startService(
  { after: (end) => void ends.push(end) },
  { mcp: { clients: { peer: { url: process.argv.at(-1), timeout: "5s" } } } },
);

interface Listed {
  name: string;
  description: string;
  status: string;
  parameters: { properties?: Record<string, { type?: string }> };
}

const list = async (): Promise<Listed[]> =>
  ((await (await service.get("/tools")).json()) as { data: Listed[] }).data.filter(({ name }) =>
    name.startsWith("peer_"),
  );
for (let tries = 0; tries < 50 && (await list()).length === 0; tries++)
  await new Promise((resolve) => setTimeout(resolve, 100));

const SAMPLES: Record<string, unknown> = { number: 1, integer: 1, string: "text", boolean: true };
const tools = await list();
const schema = tools.find(({ name }) => name === "peer_json_schema_2020_12_tool")?.parameters ?? {};
for (const { name, parameters } of tools) {
  const known = toolCalls.filter((call) => `peer_${call.name}` === name).map((call) => call.arguments);
  const made = Object.entries(parameters.properties ?? {}).map(([key, { type = "" }]) => [
    key,
    SAMPLES[type] ?? schema,
  ]);
  for (const input of known.length > 0 ? known : [Object.fromEntries(made)])
    await service.post(`/tools/${name}/execute`, { input });
}
for (const end of ends) await end();
process.exit(0);
