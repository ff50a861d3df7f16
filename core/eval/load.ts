/** Reads a file of evals, and finds its problems before anything runs. */
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { EvalCase, EvalFile, EvalJudge, ExecuteWorkflowRequest, GenerateRequest } from "../../generated/types.ts";
import { validators } from "../../generated/validators.js";
import { type ClientSchema, createClientSchemas, type PrepareSchema } from "../client-schema/schemas.ts";
import type { Validator } from "../http/decode.ts";
import type { User } from "../identity/principal.ts";
import { messageOf, type Path, type Problem } from "../lib/errors.ts";
import { describeProblems } from "../lib/json-schema.ts";
import { whyUnreadable } from "../manifest/load.ts";
import { formatPath, hint, type Issue, sortIssues } from "../manifest/manifest.ts";
import { Positions, readYaml } from "../manifest/read.ts";
import { explainErrors } from "../manifest/schema-errors.ts";
import { shortPath } from "../registry/problem.ts";

/** One case, including the defaults of the file. */
export interface Eval extends Pick<EvalCase, "name" | "expect"> {
  readonly target: { readonly kind: "agent" | "workflow"; readonly id: string };
  /** The body of the request for the case. */
  readonly request: GenerateRequest & ExecuteWorkflowRequest;
  readonly user: User | null;
  /** Compiled from `expect.schema` and `expect.pattern`. */
  readonly schema: ClientSchema | null;
  readonly pattern: ClientSchema | null;
  readonly question: { readonly text: string; readonly judge: EvalJudge } | null;
}

export interface LoadedEvals {
  /** The path of the file, for messages. */
  readonly file: string;
  readonly evals: readonly Eval[];
  readonly concurrency: number;
  readonly issues: readonly Issue[];
}

/** The names that a file may use. */
interface EvalNames {
  readonly agents: readonly string[];
  readonly workflows: readonly string[];
  /** @throws Error that says why there is no such model */
  requireModel(name: string): void;
}

/** Never throws: all problems are in `issues`, and then there are no evals. */
export async function loadEvals(path: string, known: EvalNames): Promise<LoadedEvals> {
  const file = shortPath(resolve(path));
  const failed = (issues: Issue[]): LoadedEvals => ({ file, evals: [], concurrency: 1, issues: sortIssues(issues) });
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    return failed([place(file, new Positions(), { path: [], message: whyUnreadable(error, "evals") })]);
  }
  const source = readYaml(text);
  const placed = (problem: Problem) => place(file, source.positions, problem);
  const ofText = source.problems.map(({ position, ...problem }) => ({ ...placed(problem), ...position }));
  if (ofText.some(({ severity }) => severity === "error")) return failed(ofText);
  if (source.value === null) return failed([placed({ path: [], message: "the file is empty" })]);
  const document = source.value;
  if (!validators.EvalFile(document))
    return failed(explainErrors(validators.EvalFile.errors ?? [], document).map(placed));
  const problems: Problem[] = [];
  const evals = compileEvals(document, known, problems);
  return problems.length > 0 ? failed(problems.map(placed)) : { ...document, file, evals, issues: [] };
}

function place(file: string, positions: Positions, { path, message, severity = "error" }: Problem): Issue {
  return { severity, file, ...positions.find(path), path: formatPath(path), message };
}

function compileEvals(file: EvalFile, known: EvalNames, problems: Problem[]): Eval[] {
  const schemas = createClientSchemas("the answer");
  const names = new Set<string>();
  const problem = (path: Path, message: string) => void problems.push({ path, message });
  return file.cases.map((given, index) => {
    const at: Path = ["cases", index];
    if (names.has(given.name)) problem([...at, "name"], "another case has this name");
    names.add(given.name);
    return compileEval(given, file.defaults, { at, known, schemas, problem });
  });
}

interface CaseTools {
  /** Path of the case in the file. */
  readonly at: Path;
  readonly known: EvalNames;
  readonly schemas: PrepareSchema;
  problem(path: Path, message: string): void;
}

/** Expectations that only agents or only workflows have. */
const ONLY_OF = {
  agent: ["tools", "contains", "pattern", "maxTokens"],
  workflow: ["result", "status"],
} as const;

function compileEval(given: EvalCase, defaults: EvalFile["defaults"], tools: CaseTools): Eval {
  const { at, known, problem } = tools;
  const { name, input, messages, expect } = given;
  /** Path of a key where it is written: in the case, or in the defaults. */
  const placeOf = (key: "agent" | "workflow" | "options"): Path => [...(key in given ? at : ["defaults"]), key];

  const kind = given.workflow === undefined ? "agent" : "workflow";
  const other = kind === "agent" ? "workflow" : "agent";
  const id = given.workflow ?? given.agent ?? defaults.agent;
  if (given.agent !== undefined && given.workflow !== undefined)
    problem([...at, "workflow"], 'makes no sense beside "agent"');
  if (id === undefined) problem(at, "needs agent or workflow");
  else requireName(id, kind, known, (message) => problem(placeOf(kind), message));

  if (input !== undefined && messages !== undefined) problem([...at, "messages"], 'makes no sense beside "input"');
  if (messages !== undefined && kind === "workflow")
    problem([...at, "messages"], "is for agents: a workflow has input");
  if (kind === "agent" && input === undefined && messages === undefined) problem(at, "needs input or messages");
  for (const key of ONLY_OF[other]) if (expect[key] !== undefined) problem([...at, "expect", key], `is for ${other}s`);

  const request = { input: input ?? messages ?? null, options: { ...defaults.options, ...given.options } };
  const check: Validator = kind === "agent" ? validators.GenerateRequest : validators.ExecuteWorkflowRequest;
  if (!check(request)) problem(placeOf("options"), describeProblems(check.errors));
  else if (request.options.background)
    problem(placeOf("options"), "background makes no sense: a case waits for its answer");

  const user = given.user ?? defaults.user ?? null;
  return {
    name,
    expect,
    target: { kind, id: id ?? "" },
    request,
    user: typeof user === "string" ? { id: user } : user,
    schema: prepared("schema", expect.schema, tools),
    pattern: prepared("pattern", expect.pattern && { type: "string", pattern: expect.pattern }, tools),
    question: judged(expect.judge, defaults.judge, tools),
  };
}

/** Compiles a pattern like those in clients' schemas: without backtracking, and with bounded work. */
function prepared(
  key: string,
  schema: object | undefined | "",
  { at, schemas, problem }: CaseTools,
): ClientSchema | null {
  if (!schema) return null;
  try {
    return schemas(schema, key);
  } catch (error) {
    problem([...at, "expect", key], messageOf(error).replace(`${key} `, ""));
    return null;
  }
}

function judged(
  question: EvalCase["expect"]["judge"],
  usual: EvalJudge | undefined,
  { at, known, problem }: CaseTools,
): Eval["question"] {
  if (question === undefined) return null;
  const { question: text, ...own } = typeof question === "string" ? { question } : question;
  const isOwn = Object.keys(own).length > 0;
  const judge: EvalJudge = isOwn ? own : (usual ?? {});
  const path = isOwn || usual === undefined ? [...at, "expect", "judge"] : ["defaults", "judge"];
  const { agent, model } = judge;
  if (agent === undefined && model === undefined)
    problem(path, "nobody is there to answer it: name an agent or a model in defaults.judge");
  else if (agent !== undefined && model !== undefined) problem(path, "needs exactly one of agent, model");
  else if (agent !== undefined) requireName(agent, "agent", known, (message) => problem(path, message));
  else requireModel(model!, known, (message) => problem(path, message));
  return { text, judge };
}

function requireName(
  id: string,
  kind: "agent" | "workflow",
  known: EvalNames,
  problem: (message: string) => void,
): void {
  const names = known[`${kind}s`];
  if (!names.includes(id)) problem(`no ${kind} ${JSON.stringify(id)}${hint(id, names)}`);
}

function requireModel(name: string, known: EvalNames, problem: (message: string) => void): void {
  try {
    known.requireModel(name);
  } catch (error) {
    problem(messageOf(error));
  }
}
