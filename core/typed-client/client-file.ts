/** The text of a client: types made from the OpenAPI document, the names of the manifest, and the code that is the same for all. */
import { readFileSync } from "node:fs";
import { clientDocument, namedSchemas } from "./document.ts";
import type { TypeGenerator } from "./generator.ts";
import type { ClientNames } from "./names.ts";

/** The first line of every client: a file without it is not overwritten. */
export const CLIENT_MARK =
  "/* Written by `penstock client`. Do not edit: write it again when the manifest has changed. */\n";

const HEAD = `${CLIENT_MARK}/* eslint-disable */
import createFetchClient from "openapi-fetch";
`;

/** The code templates in order; each comes after those that it uses. */
const PARTS = ["names", "errors", "events", "calls", "agents", "workflows", "client"];

const OPTIONS = {
  // A default is the server's value for a missing one, so the field stays optional.
  defaultNonNullable: false,
  // An object without declared properties may have any.
  emptyObjectsUnknown: true,
  silent: true,
};

/** Generates the client. The result depends only on the document and the names. */
export async function clientText(document: object, names: ClientNames, generator: TypeGenerator): Promise<string> {
  const { components, nameOf } = namedSchemas(names);
  const source = clientDocument(document as Record<string, unknown>, names, components);
  const types = generator.astToString(await generator.default(source, OPTIONS));
  const texts = nameTypes(names, nameOf);
  const fill = (part: string) => part.replace(/%([A-Z]+)%/g, (whole, place: string) => texts[place] ?? whole);
  return [HEAD, types, ...PARTS.map((name) => fill(readPart(name)))].join("\n");
}

const readPart = (name: string) => readFileSync(new URL(`./templates/${name}.ts.template`, import.meta.url), "utf8");

/** Texts for the placeholders of a template, by name. */
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
