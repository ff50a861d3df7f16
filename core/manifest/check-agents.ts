/** Checks agents: their models, tools, sub-agents and memory exist, and their expressions compile. */
import { isObject } from "../lib/is-object.ts";
import {
  type CheckContext,
  checkCompiled,
  checkName,
  checkRepeats,
  checkTemplate,
  entriesOf,
  findCycles,
  type Json,
  keysOf,
  listOf,
  mapOf,
  mapsOf,
} from "./check.ts";
import { compileCondition, isTemplate, SCOPES } from "./expression.ts";
import type { Path } from "./manifest.ts";
import { clientOf } from "./mcp-names.ts";

export function checkAgents(check: CheckContext): void {
  const { document } = check;
  const delegates = new Map<string, string[]>();
  for (const [id, agent] of mapsOf(document.agents)) {
    const path = ["agents", id];
    checkTemplate(check, [...path, "instructions"], agent.instructions, SCOPES.agent);
    checkSources(check, path, agent);
    checkModel(check, [...path, "model"], agent.model);
    checkTools(check, [...path, "tools"], agent);
    checkSubAgents(check, path, id, agent);
    checkBound(check, [...path, "maxSteps"], agent.maxSteps);
    for (const [option, value] of entriesOf(agent.options)) checkBound(check, [...path, "options", option], value);
    delegates.set(id, listOf(agent.subAgents).filter((name) => typeof name === "string" && name !== id) as string[]);
    if (check.isWritten([...path, "memory"])) checkMemory(check, [...path, "memory"], agent.memory);
  }
  for (const cycle of findCycles(delegates)) {
    const [first, second] = cycle as [string, string];
    const agent = (document.agents as Json)[first] as Json;
    const index = listOf(agent.subAgents).indexOf(second);
    check.report(["agents", first, "subAgents", index], `agents delegate in a circle: ${cycle.join(" -> ")}`);
  }
}

/** Checks the prompt and resources that an agent takes from MCP servers. */
function checkSources(check: CheckContext, path: Path, { prompt, resources }: Json): void {
  const clients = keysOf(mapOf(check.document.mcp).clients);
  const places = listOf(resources).map((source, index) => [[...path, "resources", index], source] as const);
  for (const [here, source] of [[[...path, "prompt"], prompt] as const, ...places]) {
    if (!isObject(source)) continue;
    checkName(check, [...here, "client"], "MCP client", source.client, clients);
    checkTemplate(check, [...here, "uri"], source.uri, SCOPES.agent);
    checkTemplate(check, [...here, "arguments"], source.arguments, SCOPES.agent);
  }
}

/** Checks `{default, max}` of an option. */
function checkBound(check: CheckContext, path: Path, value: unknown): void {
  if (!isObject(value)) return;
  const { default: own, max } = value;
  if (typeof own === "number" && typeof max === "number" && own > max)
    check.report([...path, "default"], `is above "max", which is ${max}`);
}

/** Values that older versions of YAML read as false; today they are strings. */
const FORMERLY_FALSE = ["no", "off", "none"];

function checkMemory(check: CheckContext, path: Path, memory: unknown): void {
  const known = keysOf(check.document.memory);
  if (typeof memory === "string" && FORMERLY_FALSE.includes(memory) && !known.includes(memory)) {
    check.report(path, `"${memory}" is read as the name of a memory, and there is no such memory: write false`);
  } else checkName(check, path, "memory", memory, known);
}

/** Checks a model: a name, a list of names or one expression. */
function checkModel(check: CheckContext, path: Path, model: unknown): void {
  if (typeof model === "string") {
    if (isTemplate(model)) checkTemplate(check, path, model, SCOPES.agent);
    else checkModelName(check, path, model);
    return;
  }
  for (const [index, name] of listOf(model).entries()) {
    if (typeof name !== "string") continue;
    if (isTemplate(name))
      check.report([...path, index], "an expression must be alone, not in a list; it may give a list");
    else checkModelName(check, [...path, index], name);
  }
  checkRepeats(check, path, listOf(model));
}

/** Checks a name `provider/model`, whose provider must be declared. */
export function checkModelName(check: CheckContext, path: Path, name: string): void {
  const slash = name.indexOf("/");
  if (slash <= 0 || slash === name.length - 1) {
    const [first] = keysOf(check.document.providers);
    const such = first === undefined || slash >= 0 ? "" : `, such as ${first}/${name}`;
    if (name !== "") check.report(path, `"${name}" must be provider/model${such}`);
    return;
  }
  checkName(check, path, "provider", name.slice(0, slash), keysOf(check.document.providers));
}

function checkTools(check: CheckContext, path: Path, agent: Json): void {
  const items = listOf(agent.tools);
  checkRepeats(check, path, items);
  for (const [index, item] of items.entries()) {
    const here = [...path, index];
    const use = isObject(item) ? item.use : item;
    if (isTemplate(use)) checkTemplate(check, here, use, SCOPES.agent);
    else checkToolName(check, isObject(item) ? [...here, "use"] : here, use);
    if (use === "delegate_task" && listOf(agent.subAgents).length > 0) {
      check.report(
        here,
        '"delegate_task" is the name of the tool that reaches the sub-agents: give yours another name',
      );
    }
    if (isObject(item) && typeof item.if === "string") {
      checkCompiled(check, [...here, "if"], compileCondition(item.if, SCOPES.agent));
    }
  }
}

/** Checks the name of a tool: one of the manifest, or `CLIENT_NAME` of an MCP client, whose tools are unknown until it connects. */
function checkToolName(check: CheckContext, path: Path, name: unknown): void {
  const { tools, mcp } = check.document;
  const clients = keysOf(mapOf(mcp).clients);
  if (typeof name === "string" && clientOf(name, clients) !== undefined) return;
  checkName(check, path, "tool", name, keysOf(tools));
}

/** Checks the name of a tool that the service itself can run. @param caller what names the tool, for the message */
export function checkOwnTool(check: CheckContext, path: Path, name: unknown, caller: string): void {
  checkToolName(check, path, name);
  const tool = entriesOf(check.document.tools).find(([key]) => key === name)?.[1];
  if (isObject(tool) && tool.client === true)
    check.report(path, `"${name}" runs in the client of an agent: ${caller} cannot call it`);
}

function checkSubAgents(check: CheckContext, path: Path, id: string, agent: Json): void {
  const names = listOf(agent.subAgents);
  checkRepeats(check, [...path, "subAgents"], names);
  for (const [index, name] of names.entries()) {
    const here = [...path, "subAgents", index];
    if (name === id) check.report(here, "an agent cannot be its own sub-agent");
    else checkName(check, here, "agent", name, keysOf(check.document.agents));
  }
}
