/** What may depend on the request: the agent's instructions, its models, and the tools that it is offered. */
import { invalid, messageOf, ServiceError } from "../../lib/errors.ts";
import {
  type CompileResult,
  compileCondition,
  compileTemplate,
  isTemplate,
  SCOPES,
} from "../../manifest/expression.ts";
import { formatPath } from "../../manifest/issues.ts";
import type { AgentManifest } from "../../manifest/manifest.ts";
import type { ModelChain } from "../../models/chain.ts";
import type { Models } from "../../models/models.ts";
import type { RunCall } from "./caller.ts";
import { type AgentTool, type KnownTools, type ToolSet, toolSet } from "./tool-set.ts";

/** The variables that expressions of an agent may use. */
interface AgentScope {
  readonly context: Record<string, unknown>;
  readonly user: RunCall["user"];
}

/** A value that may depend on the request. @throws ServiceError `invalid_input` when an expression fails for this request */
export type Dynamic<T> = (scope: AgentScope) => T;

type Path = readonly (string | number)[];

/**
 * A compiled expression as a function of the request. One that does not compile has been reported with the manifest.
 *
 * @param convert throws for values that do not fit
 */
export function evaluator<T = unknown>(
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
