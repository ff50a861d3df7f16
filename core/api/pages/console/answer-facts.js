/** What an answer took: tokens, time, the model, money, and the trace. */
import { element } from "./elements.js";
import { counted, dollarText, durationText } from "./formats.js";

/** @import { Usage } from "../../../../generated/types.ts" */

/** A trace that the run goes on with, so that the page knows where to find it. */
export function newTrace() {
  const digits = (/** @type {number} */ bytes) =>
    [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const id = digits(16);
  return { id, header: `00-${id}-${digits(8)}-01` };
}

/** @param {{ usage: Usage | undefined, took?: number, models: ReadonlySet<string>, traceId: string }} facts */
export function answerFacts({ usage, took, models, traceId }) {
  return element(
    "p",
    { class: "meta quiet answer-facts" },
    usage !== undefined &&
      element(
        "span",
        { title: `${usage.promptTokens} read, ${usage.completionTokens} written` },
        counted(usage.totalTokens, "token"),
      ),
    took !== undefined && element("span", {}, durationText(took)),
    models.size > 0 && element("code", {}, [...models].join(", ")),
    usage?.cost !== undefined && element("span", {}, dollarText(usage.cost)),
    traceId !== "" && element("a", { href: `#/traces/${traceId}` }, "Trace"),
  );
}
