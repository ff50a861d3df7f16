/** Computes where the steps of a workflow stand in its drawing: one below the other, branches side by side. */

import { ON_ERROR } from "./workflow-tree.js";

/** @import { Step } from "./workflow-tree.js" */

/** @typedef {{ x: number, y: number }} Point */
/** @typedef {{ step: Step, x: number, y: number }} PlacedStep top left corner */
/** @typedef {{ from: Point, to: Point, label: string }} Line */
/** @typedef {{ width: number, height: number, steps: PlacedStep[], lines: Line[], joins: Point[] }} Drawing */

export const STEP_WIDTH = 224;
export const STEP_HEIGHT = 50;
const GAP = 28;
const BESIDE = 24;

/**
 * A workflow: its steps, and beside them those that run when one of them has failed.
 *
 * @param {readonly Step[]} steps @param {readonly Step[]} onError
 * @returns {Drawing}
 */
export function layoutWorkflow(steps, onError) {
  const drawing = layout(steps);
  if (onError.length === 0) return drawing;
  const handles = layout(onError);
  const left = drawing.width + BESIDE;
  const middle = left + handles.width / 2;
  drawing.lines.push(line(middle, 0, middle, GAP, ON_ERROR));
  put(drawing, handles, left, GAP);
  drawing.width = left + handles.width;
  drawing.height = Math.max(drawing.height, GAP + handles.height);
  return drawing;
}

/**
 * A sequence: the middle of its first step at the top is where it is entered, the middle of its bottom where it is left.
 *
 * @param {readonly Step[]} steps
 * @returns {Drawing}
 */
export function layout(steps) {
  const parts = steps.map(layoutStep);
  const width = Math.max(STEP_WIDTH, ...parts.map((part) => part.width));
  /** @type {Drawing} */
  const drawing = { width, height: 0, steps: [], lines: [], joins: [] };
  for (const part of parts) {
    if (drawing.height > 0) {
      const middle = width / 2;
      drawing.lines.push(line(middle, drawing.height, middle, drawing.height + GAP));
      drawing.height += GAP;
    }
    put(drawing, part, (width - part.width) / 2, drawing.height);
    drawing.height += part.height;
  }
  return drawing;
}

/** @param {Step} step @returns {Drawing} */
function layoutStep(step) {
  const branches = step.branches.filter((branch) => branch.steps.length > 0);
  if (branches.length === 0) {
    return { width: STEP_WIDTH, height: STEP_HEIGHT, steps: [{ step, x: 0, y: 0 }], lines: [], joins: [] };
  }
  const parts = branches.map((branch) => layout(branch.steps));
  // A condition without `else` can be passed by, and the steps for a failure.
  const usual = branches.filter(({ label }) => label !== ON_ERROR).length;
  const passes = usual === 0 || (step.type === "andWhen" && usual === 1);
  const inner =
    parts.reduce((sum, part) => sum + part.width, 0) + BESIDE * (parts.length - 1) + (passes ? 2 * BESIDE : 0);
  const width = Math.max(STEP_WIDTH, inner);
  const middle = width / 2;
  const top = STEP_HEIGHT + GAP * 1.4;
  const bottom = top + Math.max(...parts.map((part) => part.height)) + GAP;
  /** @type {Drawing} */
  const drawing = { width, height: bottom, steps: [{ step, x: middle - STEP_WIDTH / 2, y: 0 }], lines: [], joins: [] };
  drawing.joins.push({ x: middle, y: bottom });
  let left = (width - inner) / 2 + (passes ? BESIDE : 0);
  for (const [index, part] of parts.entries()) {
    const x = left + part.width / 2;
    drawing.lines.push(line(middle, STEP_HEIGHT, x, top, branches[index]?.label));
    drawing.lines.push(line(x, top + part.height, middle, bottom));
    put(drawing, part, left, top);
    left += part.width + BESIDE;
  }
  if (passes) {
    const x = width - 2;
    drawing.lines.push(
      line(middle, STEP_HEIGHT, x, top),
      line(x, top, x, bottom - GAP),
      line(x, bottom - GAP, middle, bottom),
    );
  }
  return drawing;
}

/** @param {number} x @param {number} y @param {number} toX @param {number} toY @param {string} [label] @returns {Line} */
const line = (x, y, toX, toY, label = "") => ({ from: { x, y }, to: { x: toX, y: toY }, label });

/** @param {Drawing} drawing @param {Drawing} part @param {number} x @param {number} y */
function put(drawing, part, x, y) {
  /** @param {Point} point */
  const moved = (point) => ({ x: point.x + x, y: point.y + y });
  drawing.steps.push(...part.steps.map((placed) => ({ ...placed, ...moved(placed) })));
  drawing.lines.push(...part.lines.map(({ from, to, label }) => ({ from: moved(from), to: moved(to), label })));
  drawing.joins.push(...part.joins.map(moved));
}
