/** The text of a client: types made of the OpenAPI document, the names of the manifest, and the code that is the same for all. */
import { readFileSync } from "node:fs";
import { clientDocument, namedSchemas } from "./document.ts";
import type { TypeGenerator } from "./generator.ts";
import type { ClientNames } from "./names.ts";

/** The first line of every client: a file without it is not written over. */
export const CLIENT_MARK =
  "/* Written by `penstock client`. Do not edit: write it again when the manifest has changed. */\n";

const HEAD = `${CLIENT_MARK}/* eslint-disable */
import createFetchClient from "openapi-fetch";
`;

/** In this order; each is below what it uses. */
const PARTS = ["names", "errors", "events", "calls", "agents", "workflows", "client"];

const OPTIONS = {
  // A default is what the server takes for what is left out.
  defaultNonNullable: false,
  // An object that says nothing of its properties may have any.
  emptyObjectsUnknown: true,
  silent: true,
};

/** The same document and names give the same text. */
export async function clientText(document: object, names: ClientNames, generator: TypeGenerator): Promise<string> {
  const { components, nameOf } = namedSchemas(names);
  const source = clientDocument(document as Record<string, unknown>, names, components);
  const types = generator.astToString(await generator.default(source, OPTIONS));
  const texts = nameTypes(names, nameOf);
  const fill = (part: string) => part.replace(/%([A-Z]+)%/g, (whole, place: string) => texts[place] ?? whole);
  return [HEAD, types, ...PARTS.map((name) => fill(readPart(name)))].join("\n");
}

const readPart = (name: string) => readFileSync(new URL(`./templates/${name}.ts.template`, import.meta.url), "utf8");

/** Texts for the places that a part has, by their names. */
function nameTypes(
  { agents, tools, toolPrefixes, workflows }: ClientNames,
  nameOf: (key: string) => string | undefined,
): Record<string, string> {
  const typeOf = (key: string) => {
    const name = nameOf(key);
    return name === undefined ? "unknown" : `components["schemas"][${JSON.stringify(name)}]`;
  };
  const toolRows = [
    ...[...tools.keys()].map((name) => `${JSON.stringify(name)}: { input: ${typeOf(`tool.${name}.input`)} };`),
    ...toolPrefixes.map((prefix) => `[tool: \`${prefix}\${string}\`]: { input: Record<string, unknown> };`),
  ];
  const workflowRows = [...workflows.keys()].map((id) => {
    const parts = ["input", "result", "resume"].map((part) => `${part}: ${typeOf(`workflow.${id}.${part}`)}`);
    return `${JSON.stringify(id)}: { ${parts.join("; ")} };`;
  });
  return {
    AGENTS: agents.map((id) => JSON.stringify(id)).join(" | ") || "never",
    TOOLS: toolRows.join("\n  "),
    WORKFLOWS: workflowRows.join("\n  "),
  };
}
