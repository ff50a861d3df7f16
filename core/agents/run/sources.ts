/** Texts of MCP servers that follow the instructions of an agent: resources, and a prompt. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { compileExpression, compileTemplate, SCOPES } from "../../manifest/expression.ts";
import type { AgentManifest } from "../../manifest/manifest.ts";
import { splitTemplate } from "../../manifest/template-text.ts";
import { encode, scalarText } from "../../tools/http-values.ts";
import { clipText } from "../prompt/clip.ts";
import type { RunCaller } from "./caller.ts";
import type { Dynamic } from "./dynamic.ts";
import { evaluator } from "./dynamic.ts";
import type { RunRecord } from "./journal.ts";

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

type Path = readonly (string | number)[];

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
