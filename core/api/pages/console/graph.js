/** A workflow as a drawing, and as a list for screen readers. Both show how far an execution is. */
import { element, replace, shape } from "./elements.js";
import { shortened } from "./formats.js";
import { layoutWorkflow, STEP_HEIGHT, STEP_WIDTH } from "./graph-layout.js";
import { badge, signOf, statusClass } from "./parts.js";
import { ON_ERROR } from "./workflow-tree.js";

/** @import { Line } from "./graph-layout.js" */
/** @import { Step, WorkflowTree } from "./workflow-tree.js" */

/** Characters of a name that fit. */
const NAME_LENGTH = 24;
const MARGIN = 10;
/** Where the screen is narrow the drawing shrinks to this; then it scrolls. */
const LEAST_SCALE = 0.62;
const IDLE = "not begun";

/**
 * @typedef {object} Graph
 * @property {HTMLElement} body
 * @property {(path: string, status: string) => void} mark shows how a step stands; an unknown path is ignored
 */

/**
 * @param {WorkflowTree} tree
 * @param {{ live: boolean }} options whether it is that of an execution, whose steps stand somewhere
 * @returns {Graph}
 */
export function buildGraph({ detail, steps, onError }, { live }) {
  const { width, height, steps: placed, lines, joins } = layoutWorkflow(steps, onError);
  /** @type {Map<string, (status: string) => void>} */
  const marks = new Map();
  const boxes = placed.map(({ step, x, y }) => {
    const { box, mark } = stepBox(step);
    box.setAttribute("transform", `translate(${x} ${y})`);
    marks.set(step.path, mark);
    return box;
  });
  const drawing = shape(
    "svg",
    {
      class: "graph",
      role: "img",
      "aria-label": `Drawing of ${detail.name}. The list of its steps says the same.`,
      viewBox: `${-MARGIN} ${-MARGIN} ${width + 2 * MARGIN} ${height + 2 * MARGIN}`,
      width: width + 2 * MARGIN,
      height: height + 2 * MARGIN,
    },
    ...lines.map(lineShape),
    ...lines.map(labelShape),
    ...joins.map(({ x, y }) => shape("circle", { class: "join", cx: x, cy: y, r: 4 })),
    ...boxes,
  );
  drawing.style.minWidth = `${width * LEAST_SCALE}px`;
  const list = stepList({ steps, onError }, marks, live);
  return {
    body: element(
      "div",
      { class: "graph-view" },
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Drawing of the steps" }, drawing),
      element("details", { class: "fold", open: true }, element("summary", {}, "Steps as a list"), list),
    ),
    mark: (path, status) => marks.get(path)?.(status),
  };
}

/** @param {Step} step */
function stepBox({ name, type, path }) {
  const note = shape("text", { class: "note", x: 14, y: 38 }, type);
  const box = shape(
    "g",
    { class: "step is-idle" },
    shape("title", {}, `${name} (${path})`),
    shape("rect", { width: STEP_WIDTH, height: STEP_HEIGHT, rx: 9 }),
    shape("text", { class: "name", x: 14, y: 21 }, shortened(name, NAME_LENGTH)),
    note,
  );
  /** @param {string} status */
  const mark = (status) => {
    box.setAttribute("class", `step ${statusClass(status)}`);
    replace(note, status === IDLE ? type : `${type} ${signOf(status)} ${status}`);
  };
  return { box, mark };
}

/** @param {Line} line */
function lineShape({ from, to }) {
  const half = (from.y + to.y) / 2;
  return shape("path", { class: "line", d: `M${from.x} ${from.y}C${from.x} ${half} ${to.x} ${half} ${to.x} ${to.y}` });
}

/** @param {Line} line */
function labelShape({ from, to, label }) {
  if (label === "") return null;
  return shape("text", { class: "label", x: (from.x + to.x) / 2 + 6, y: (from.y + to.y) / 2 + 4 }, label);
}

/** @param {Pick<WorkflowTree, "steps" | "onError">} tree @param {Map<string, (status: string) => void>} marks @param {boolean} live */
function stepList({ steps, onError }, marks, live) {
  /** @param {Step} step @returns {HTMLElement} */
  const item = ({ name, type, path, branches }) => {
    const status = element("span", {}, live && badge(IDLE));
    const draw = marks.get(path);
    marks.set(path, (text) => {
      draw?.(text);
      replace(status, badge(text));
    });
    const inner = branches.filter((branch) => branch.steps.length > 0);
    return element(
      "li",
      {},
      element("span", { class: "step-name" }, name),
      ` ${type} `,
      status,
      ...inner.map((branch) =>
        element("ol", branch.label === "" ? {} : { "aria-label": branch.label }, ...branch.steps.map(item)),
      ),
    );
  };
  const handles =
    onError.length > 0 && element("li", {}, ON_ERROR, element("ol", { "aria-label": ON_ERROR }, ...onError.map(item)));
  return element("ol", { class: "steps" }, ...steps.map(item), handles);
}
