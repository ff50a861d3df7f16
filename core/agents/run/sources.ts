/** Texts of MCP servers that follow the instructions of an agent: resources, and a prompt. */

import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { invalid, messageOf, type Path, ServiceError } from "../../lib/errors.ts";
import {
  type CompileResult,
  compileCondition,
  compileExpression,
  compileTemplate,
  isTemplate,
  SCOPES,
} from "../../manifest/expression.ts";
import { type AgentManifest, formatPath } from "../../manifest/manifest.ts";
import { splitTemplate } from "../../manifest/template-text.ts";
import type { ModelChain, Models } from "../../models/models.ts";
import { encode, scalarText } from "../../tools/http-values.ts";
import { clipText } from "../prompt/size.ts";
import type { RunCall, RunCaller } from "./caller.ts";
import type { RunRecord } from "./journal.ts";
import { type AgentTool, type KnownTools, type ToolSet, toolSet } from "./tool-set.ts";

export type SourceRequest =
  | { readonly kind: "resource"; readonly uri: string }
  | { readonly kind: "prompt"; readonly name: string; readonly arguments: Readonly<Record<string, string>> };

export interface SourceReader {
  /**
   * @param client name of an MCP client
   * @throws ServiceError `unavailable` when the server cannot be reached, `tool_failed` when it refuses
   */
  read(client: string, request: SourceRequest, caller: Pick<RunCaller, "user" | "signal">): Promise<string>;
}

/** What one run is to read. */
interface RunSource {
  readonly client: string;
  readonly maxBytes: number;
  readonly request: SourceRequest;
}

/** The run whose prompt they become part of. */
interface SourcedRun {
  readonly prompt: LanguageModelV3Message[];
  readonly call: RunCaller;
  readonly record: RunRecord | null;
}

/** What follows the instructions of one run. */
export interface RunSources {
  readonly instructions: string;
  readonly list: readonly RunSource[];
}

/** @returns null for an agent without any */
export function dynamicSources(
  { prompt, resources = [] }: AgentManifest,
  path: Path,
): Dynamic<readonly RunSource[]> | null {
  if (prompt === undefined && resources.length === 0) return null;
  const ofPrompt = prompt === undefined ? [] : [promptSource(prompt, [...path, "prompt"])];
  const all = [...ofPrompt, ...resources.map((each, index) => resourceSource(each, [...path, "resources", index]))];
  return (scope) => all.map((source) => source(scope));
}

function promptSource(prompt: NonNullable<AgentManifest["prompt"]>, path: Path): Dynamic<RunSource> {
  const { client, name, maxBytes } = prompt;
  const texts = Object.entries(prompt.arguments).map(([key, text]) => {
    const here = [...path, "arguments", key];
    return [key, evaluator(compileTemplate(text, SCOPES.agent), here, plainText)] as const;
  });
  return (scope) => {
    const given = Object.fromEntries(texts.map(([key, textOf]) => [key, textOf(scope) ?? ""]));
    return { client, maxBytes, request: { kind: "prompt", name, arguments: given } };
  };
}

function resourceSource(
  { client, uri, maxBytes }: NonNullable<AgentManifest["resources"]>[number],
  path: Path,
): Dynamic<RunSource> {
  const split = splitTemplate(uri);
  const pieces = ("problem" in split ? [] : split.pieces).map((piece) =>
    typeof piece === "string"
      ? (): string => piece
      : evaluator(compileExpression(piece.source, SCOPES.agent), [...path, "uri"], segmentText),
  );
  return (scope) => {
    const text = pieces.map((piece) => piece(scope)).join("");
    return { client, maxBytes, request: { kind: "resource", uri: text } };
  };
}

const plainText = (value: unknown): string => scalarText(value, () => "it");

/** A value of a request stays within its place: it leads to no other path than that of the manifest. */
function segmentText(value: unknown): string {
  const text = plainText(value);
  if (/^\.{0,2}$/.test(text)) throw new Error(`it must not be ${JSON.stringify(text)}`);
  return encode(text);
}

/**
 * Puts them behind the instructions, with which the prompt begins unless there are none. A run that goes on later has the texts that it
 * began with: the model has been told them, and the caller who may read them need not be there any more.
 */
export async function addSources(plan: SourcedRun, sources: RunSources, reader: SourceReader): Promise<void> {
  const { instructions } = sources;
  const texts = plan.record?.texts ?? (await readSources(plan, sources, reader));
  const content = [...(instructions === "" ? [] : [instructions]), ...texts].join("\n\n");
  plan.prompt.splice(0, instructions === "" ? 0 : 1, { role: "system", content });
}

async function readSources(plan: SourcedRun, { list }: RunSources, reader: SourceReader): Promise<readonly string[]> {
  const texts = await Promise.all(
    list.map(async ({ client, maxBytes, request }) => {
      const text = clipText(await reader.read(client, request, plan.call), maxBytes);
      return request.kind === "prompt" ? text : `<resource uri=${JSON.stringify(request.uri)}>\n${text}\n</resource>`;
    }),
  );
  plan.record?.recordTexts(texts);
  return texts;
}

// What may depend on the request: the agent's instructions, its models, and the tools that it is offered.

/** The variables that expressions of an agent may use. */
interface AgentScope {
  readonly context: Record<string, unknown>;
  readonly user: RunCall["user"];
}

/** A value that may depend on the request. @throws ServiceError `invalid_input` when an expression fails for this request */
export type Dynamic<T> = (scope: AgentScope) => T;

/**
 * A compiled expression as a function of the request. One that does not compile has been reported with the manifest.
 *
 * @param convert throws for values that do not fit
 */
function evaluator<T = unknown>(
  compiled: CompileResult,
  path: Path,
  convert: (value: unknown) => T = (value) => value as T,
): Dynamic<T | null> {
  if ("problem" in compiled) return () => null;
  return (scope) => {
    try {
      return convert(compiled.evaluate({ context: scope.context, user: scope.user }));
    } catch (error) {
      throw error instanceof ServiceError ? error : invalid(`${formatPath(path)}: ${messageOf(error)}`);
    }
  };
}

export function dynamicInstructions(manifest: AgentManifest, path: Path): Dynamic<string> {
  const { instructions } = manifest;
  if (!isTemplate(instructions)) return () => instructions;
  const evaluate = evaluator(compileTemplate(instructions, SCOPES.agent), [...path, "instructions"]);
  return (scope) => {
    const value = evaluate(scope);
    return typeof value === "string" ? value : value === null ? "" : JSON.stringify(value);
  };
}

/** A chain without expressions is created once; an expression may give a name or a list of names. */
export function dynamicChain(manifest: AgentManifest, models: Models, path: Path): Dynamic<ModelChain> {
  const { model } = manifest;
  const names = typeof model === "string" ? [model] : model;
  if (typeof model !== "string" || !isTemplate(model)) {
    return fixedChain(names, models);
  }
  const evaluate = evaluator(compileTemplate(model, SCOPES.agent), [...path, "model"]);
  const where = formatPath([...path, "model"]);
  return (scope) => {
    const chosen = [evaluate(scope)].flat();
    if (chosen.length === 0 || !chosen.every((name) => typeof name === "string")) {
      throw invalid(`${where} must give the name of a model, not ${JSON.stringify(chosen)}`);
    }
    return models.chain(chosen as string[]);
  };
}

/** An unknown model was reported when the models were created: here it only fails its runs. */
function fixedChain(names: readonly string[], models: Models): Dynamic<ModelChain> {
  try {
    const chain = models.chain(names);
    return () => chain;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

interface ToolChoice {
  /** The tool, or a function of the request that gives its name. */
  readonly use: AgentTool | Dynamic<unknown>;
  readonly offered: Dynamic<boolean> | null;
}

/**
 * The tools that a request is offered, as a function of it.
 *
 * @param known every tool of the service: an expression may name any of them
 * @param extra tools that are always offered (`delegate_task`)
 */
export function dynamicTools(
  manifest: AgentManifest,
  known: KnownTools,
  extra: readonly AgentTool[],
  path: Path,
): Dynamic<ToolSet> {
  const choices = manifest.tools.flatMap((item, index) => {
    const { use, if: condition } = typeof item === "string" ? { use: item, if: undefined } : item;
    const here = [...path, "tools", index];
    const tool = isTemplate(use) ? evaluator(compileTemplate(use, SCOPES.agent), [...here, "use"]) : known.get(use);
    const offered = condition === undefined ? null : compileIf(condition, [...here, "if"]);
    return tool === undefined ? [] : [{ use: tool, offered }];
  });
  if (choices.every(({ use, offered }) => typeof use !== "function" && offered === null)) {
    const all = toolSet([...new Set(choices.map(({ use }) => use as AgentTool)), ...extra]);
    return () => all;
  }
  return (scope) => {
    const tools: AgentTool[] = [];
    for (const choice of choices) {
      if (choice.offered !== null && !choice.offered(scope)) continue;
      const tool = typeof choice.use === "function" ? findTool(choice.use(scope), known, path) : choice.use;
      if (tool !== null && !tools.includes(tool)) tools.push(tool);
    }
    return toolSet([...tools, ...extra]);
  };
}

/** Compiles `if:`, which is an expression with or without braces. */
function compileIf(condition: string, path: Path): ToolChoice["offered"] {
  const evaluate = evaluator(compileCondition(condition, SCOPES.agent), path);
  return (scope) => {
    const value = evaluate(scope);
    if (typeof value !== "boolean") throw invalid(`${formatPath(path)} must give true or false`);
    return value;
  };
}

/** Null when the expression gives no name: then nothing is offered. */
function findTool(name: unknown, known: KnownTools, path: Path): AgentTool | null {
  if (name === null || name === "") return null;
  const tool = typeof name === "string" ? known.get(name) : undefined;
  if (tool === undefined) throw invalid(`${formatPath(path)}.tools: there is no tool ${JSON.stringify(name)}`);
  return tool;
}
