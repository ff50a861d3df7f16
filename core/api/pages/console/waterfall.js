/** Spans one below the other, each with a bar from its beginning to its end. */
import { element, shape } from "./elements.js";
import { durationText } from "./formats.js";

/** @import { SpanNode, SpanRecord } from "../../../../generated/types.ts" */

/** The most rows: nobody reads more, and they make a browser slow. */
const MOST = 1000;
const SCALE = 1000;

/**
 * @param {readonly SpanNode[]} tree
 * @param {(span: SpanRecord) => void} choose
 */
export function buildWaterfall(tree, choose) {
  const spans = inOrder(tree);
  const begins = Math.min(...spans.map(startOf));
  const length = Math.max(0.001, Math.max(...spans.map(endOf)) - begins);
  const shown = spans.slice(0, MOST);
  const buttons = shown.map((span) =>
    element("button", { type: "button", class: "span-name", onclick: () => press(span) }, span.name),
  );

  /** @param {SpanNode} span */
  function press(span) {
    mark(span);
    choose(span);
  }

  /** @param {SpanNode | undefined} span */
  function mark(span) {
    for (const [index, button] of buttons.entries()) button.setAttribute("aria-pressed", String(shown[index] === span));
  }

  const rows = shown.map((span, index) => {
    const name = element("th", { scope: "row" }, buttons[index]);
    name.style.paddingLeft = `${Math.min(span.depth, 12) * 0.9}rem`;
    const bar = barOf(
      (startOf(span) - begins) / length,
      (endOf(span) - startOf(span)) / length,
      span.status.code === 2,
    );
    const took = span.duration === undefined ? "running" : durationText(span.duration);
    const failed = span.status.code === 2 ? " ✕ error" : "";
    return element("tr", {}, name, element("td", { class: "bar-cell" }, bar), element("td", {}, took, failed));
  });
  mark(shown[0]);
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": "Waterfall" },
    element(
      "table",
      { class: "waterfall" },
      element(
        "caption",
        { class: "unseen" },
        "Spans, those below one another indented. A button shows what is known of one.",
      ),
      element(
        "thead",
        {},
        element("tr", {}, ...["Span", "Time", "Took"].map((text) => element("th", { scope: "col" }, text))),
      ),
      element("tbody", {}, ...rows),
    ),
    spans.length > MOST && element("p", { class: "quiet" }, `The first ${MOST} of ${spans.length} spans.`),
  );
}

/** @param {readonly SpanNode[]} tree @returns {SpanNode[]} */
const inOrder = (tree) => tree.flatMap((span) => [span, ...inOrder(span.children)]);

/** In milliseconds with fractions: times have microseconds, which `Date` drops. @param {SpanRecord} span */
function startOf({ startTime }) {
  const [, micros = "0"] = /\.\d{3}(\d{1,3})/.exec(startTime) ?? [];
  return Date.parse(startTime) + Number(micros.padEnd(3, "0")) / 1000;
}

/** @param {SpanRecord} span */
function endOf(span) {
  return span.duration === undefined ? Date.now() : startOf(span) + span.duration;
}

/** @param {number} from share of the whole @param {number} length the same @param {boolean} failed */
export function barOf(from, length, failed) {
  const width = Math.max(4, length * SCALE);
  return shape(
    "svg",
    {
      class: `bar-of-time ${failed ? "is-error" : ""}`,
      viewBox: `0 0 ${SCALE} 10`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    shape("rect", { x: Math.min(from * SCALE, SCALE - width), width, height: 10 }),
  );
}
