/** A model that says `half N `, waits for the test, and says `rest N`: N is how often it was asked. It is steered by files, so from any process. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pluginFolder } from "./plugin-folder.ts";
import { until } from "./probe.ts";

/** A plugin that is given the folder of its files. */
export const HELD_PROVIDER = `import { appendFileSync, existsSync, readFileSync } from "node:fs";
const tokens = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
const finish = { type: "finish", finishReason: { unified: "stop", raw: "stop" },
  usage: { inputTokens: tokens, outputTokens: { total: 1, text: 1, reasoning: 0 } } };
export default { kind: "provider", name: "held",
  config: { type: "object", properties: { folder: { type: "string" } } },
  create: ({ folder }) => ({ retries: 0,
    languageModel: (id) => ({ specificationVersion: "v3", provider: "held", modelId: id, supportedUrls: {},
      doStream: async ({ prompt, abortSignal }) => {
        const question = prompt.filter(({ role }) => role === "user").at(-1).content.map(({ text }) => text).join("");
        appendFileSync(folder + "/asked", question + "\\n");
        const n = readFileSync(folder + "/asked", "utf8").split("\\n").length - 1;
        const first = [{ type: "stream-start", warnings: [] }, { type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "half " + n + " " }];
        const rest = [{ type: "text-delta", id: "t", delta: "rest " + n }, { type: "text-end", id: "t" }, finish];
        return { stream: new ReadableStream({ async pull(controller) {
          const part = first.shift();
          if (part !== undefined) return controller.enqueue(part);
          while (existsSync(folder + "/hold " + question) && !abortSignal?.aborted) await new Promise((resolve) => setTimeout(resolve, 10));
          if (abortSignal?.aborted) return controller.error(abortSignal.reason);
          const next = rest.shift();
          if (next === undefined) controller.close(); else controller.enqueue(next);
        } }) };
      } }) }) };`;

export interface HeldModel {
  /** For `providers` of a manifest, with `plugins`. */
  readonly settings: { use: "held"; folder: string };
  readonly plugins: string;
  /** The answer to this question waits after its first half, until `release`. */
  hold(question: string): void;
  release(question: string): void;
  /** Resolves when the model was asked this so often. */
  isAsked(question: string, times?: number): Promise<void>;
}

export function heldModel(t: { after(end: () => unknown): void }): HeldModel {
  const folder = mkdtempSync(join(tmpdir(), "penstock-held-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const asked = () =>
    existsSync(join(folder, "asked")) ? readFileSync(join(folder, "asked"), "utf8").trim().split("\n") : [];
  const held = (question: string) => join(folder, `hold ${question}`);
  return {
    settings: { use: "held", folder },
    plugins: pluginFolder(t as never, { "providers/held.mjs": HELD_PROVIDER }),
    hold: (question) => writeFileSync(held(question), ""),
    release: (question) => rmSync(held(question), { force: true }),
    isAsked: (question, times = 1) =>
      until(() => asked().filter((line) => line === question).length >= times, `the question ${question}, ${times}`),
  };
}
