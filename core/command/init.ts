/** The command `init`: creates a project that can be served at once and needs no network. */
import { readFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { parse, stringify } from "yaml";
import { toolsOfOpenApi } from "../init/openapi.ts";
import { packageName, projectFiles, TEMPLATES, type TemplateName, writeProject } from "../init/project.ts";
import { messageOf } from "../lib/errors.ts";
import { suggest } from "../manifest/manifest.ts";
import { type Invocation, Misuse } from "./invocation.ts";

export async function init({ rest, template, from }: Invocation): Promise<number> {
  if (from !== undefined && from !== "openapi") throw new Misuse(`--from must be openapi, not "${from}"`);
  if (from !== undefined && template !== undefined) throw new Misuse("--template and --from are two ways: choose one");
  // With --from the document comes last.
  const source = from === undefined ? undefined : rest.at(-1);
  const [directory = ".", surplus] = source === undefined ? rest : rest.slice(0, -1);
  if (surplus !== undefined) throw new Misuse(`init takes no "${surplus}"`);
  if (from !== undefined && source === undefined)
    throw new Misuse("init --from openapi needs a FILE, e.g. penstock init my-service --from openapi api.yaml");
  const folder = resolve(directory);
  const values = { NAME: packageName(basename(folder)) };
  const files =
    source === undefined ? projectFiles(templateOf(template), values) : await filesOfOpenApi(source, values);
  const lines = await writeProject(folder, files);
  const { scripts } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const start = scripts.start === "penstock-gateway serve" ? "npm start" : "npx penstock-gateway";
  const steps = [...(directory === "." ? [] : [`cd ${directory}`]), "npm install", start];
  process.stdout.write(`${lines.map((line) => `  ${line}`).join("\n")}
It answers offline. For a real model: OPENAI_API_KEY, and the lines of service.yaml that say so.
Next: ${steps.join(" && ")}
`);
  return 0;
}

function templateOf(name = "chat"): TemplateName {
  const found = TEMPLATES.find((each) => each === name);
  if (found !== undefined) return found;
  const meant = suggest(name, TEMPLATES);
  const hint = meant === undefined ? "" : `, did you mean ${meant}?`;
  throw new Misuse(`--template must be one of ${TEMPLATES.join(", ")}, not "${name}"${hint}`);
}

async function filesOfOpenApi(source: string, values: Record<string, string>): Promise<Map<string, string>> {
  const { title, tools, variables, unmapped } = await readOpenApi(source);
  for (const line of unmapped) process.stderr.write(`not mapped: ${line}\n`);
  const names = Object.keys(tools);
  const [first] = names;
  if (first === undefined) throw new Error(`${source}: no operation of it can be a tool`);
  const filled = { ...values, SOURCE: basename(source), TITLE: title, TOOLS: names.join(", "), TOOL: first };
  const files = projectFiles("openapi", filled);
  const append = (name: string, text: string) => files.set(name, `${files.get(name)}${text}`);
  append("service.yaml", stringify({ tools }, { lineWidth: 0 }));
  append(
    ".env.example",
    Object.entries(variables)
      .map(([name, meaning]) => `# ${meaning.replace(/\s+/g, " ")}\n# ${name}=\n`)
      .join(""),
  );
  return files;
}

/** Reads an OpenAPI document in JSON or YAML. */
async function readOpenApi(source: string): Promise<ReturnType<typeof toolsOfOpenApi>> {
  try {
    return toolsOfOpenApi(parse(await readFile(source, "utf8")));
  } catch (error) {
    throw new Error(`${source}: ${messageOf(error)}`, { cause: error });
  }
}
