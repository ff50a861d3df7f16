/** The inbox: all that waits for a person, the oldest first, each with a form to answer, and answers to many at once. */
import { segment } from "./api.js";
import { approvalCard, toolSchemas } from "./approval-card.js";
import { element, replace } from "./elements.js";
import { whose } from "./execution-owner.js";
import { counted } from "./formats.js";
import { filterForm } from "./listing.js";
import { changes, keepAsking } from "./live.js";
import { moment } from "./moments.js";
import { field, problem, section } from "./parts.js";
import { linkTo } from "./router.js";
import { answerAlone, suspensionPanel } from "./suspension.js";
import { valueView } from "./value-view.js";
import { allWaiting } from "./waiting.js";
import { allSteps, loadTree } from "./workflow-tree.js";

/** @import { Approval, WorkflowExecution } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @import { Waiting } from "./waiting.js" */
/** @import { WorkflowTree } from "./workflow-tree.js" */

/** Between two requests, in milliseconds. */
const PAUSE = 4000;
/** Of those that were decided, for each outcome. */
const MOST_DECIDED = 10;
const OUTCOMES = ["approved", "denied", "expired", "withdrawn"];
/** Answers that are on their way at once. */
const AT_ONCE = 4;

/** @param {Place} place */
export async function inboxView(place) {
  const { api, signal, query, body, announce, count } = place;
  const search = query.get("search") ?? "";
  const name = query.get("name") ?? "";
  const failure = element("div");
  const kinds = element("nav", { class: "kinds", "aria-label": "What is asked" });
  const said = element("p", { class: "quiet" }, "Loading…");
  const rows = element("ul", { class: "inbox" });
  const detail = element("div", { id: "inbox-detail" });
  const decided = element("div");
  const all = element("input", { type: "checkbox", id: "inbox-all", onchange: chooseAll });
  const reason = element("input", { id: "inbox-reason", autocomplete: "off" });
  const bulk = element("div", { class: "bulk", hidden: true });
  const left = section(
    "All that waits",
    said,
    element("div", { class: "check" }, all, element("label", { for: all.id }, "Choose all that are listed")),
    bulk,
    rows,
    element("p", { class: "hint" }, "j and k go down and up, a approves, d refuses, x chooses for an answer to many."),
  );
  body.append(
    filterForm("inbox", [{ name: "search", label: "Search", value: search, form: "order, user, agent" }], { name }),
    kinds,
    failure,
    element("div", { class: "beside inbox-view" }, left, detail),
    section("Decided lately", decided),
  );

  const schemas = await toolSchemas(place);
  /** @type {Map<string, Promise<WorkflowTree>>} */
  const trees = new Map();
  /** What waits, as far as it is listed. @type {readonly Waiting[]} */
  let listed = [];
  /** @type {readonly Waiting[]} */
  let found = [];
  /** The one that is shown. */
  let current = query.get("item") ?? "";
  let shown = "";
  /** @type {Set<string>} */
  const chosen = new Set();
  /** Answered here, which the next look may not know yet. @type {Set<string>} */
  const answered = new Set();
  /** @type {Map<string, HTMLElement>} */
  const lines = new Map();
  const differs = { waiting: changes(), decided: changes() };

  /** @param {string} workflow */
  function treeOf(workflow) {
    const known = trees.get(workflow) ?? loadTree(api, workflow, signal);
    trees.set(workflow, known);
    return known;
  }

  /** One that is suspended again has another question. @param {Waiting} item */
  const keyOf = ({ id, since }) => `${id} ${since}`;

  /** @param {Waiting} item */
  const isListed = (item) =>
    (name === "" || item.name === name) &&
    [item.id, item.name, item.what, item.by, item.user].join("\n").toLowerCase().includes(search.toLowerCase());

  /** @returns {number} how many wait, listed or not */
  function draw() {
    const open = found.filter((item) => !answered.has(keyOf(item)));
    const at = listed.findIndex(({ id }) => id === current);
    listed = open.filter(isListed);
    count("inbox", open.length);
    const [oldest] = open;
    replace(
      said,
      open.length === 0 ? "Nothing waits for a person." : `${counted(open.length, "question")}`,
      listed.length < open.length && `, ${listed.length} of them listed`,
      oldest && ", the oldest for ",
      oldest && moment("for", oldest.since),
    );
    drawKinds(open);
    for (const item of listed) if (!lines.has(keyOf(item))) lines.set(keyOf(item), line(item));
    const keys = new Set(listed.map(keyOf));
    for (const key of lines.keys()) if (!keys.has(key)) lines.delete(key);
    for (const key of chosen) if (!keys.has(key)) chosen.delete(key);
    const hadFocus = rows.contains(document.activeElement) || detail.contains(document.activeElement);
    arrange(
      rows,
      listed.map((item) => lines.get(keyOf(item)) ?? element("li")),
    );
    drawBulk();
    // What came after the one that is gone takes its place. One that a link names, and that does not wait any more, is looked for.
    if (listed.some(({ id }) => id === current)) show(current, false);
    else if (shown === "" && current !== "") showDecided();
    else if (at >= 0 || shown === "") show(listed[Math.min(Math.max(at, 0), listed.length - 1)]?.id ?? "", hadFocus);
    return open.length;
  }

  /** @param {readonly Waiting[]} open */
  function drawKinds(open) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const item of open) counts.set(item.name, (counts.get(item.name) ?? 0) + 1);
    const focused = document.activeElement?.id ?? "";
    /** @param {string} value @param {string} label @param {number} number */
    const kind = (value, label, number) =>
      element(
        "a",
        {
          id: `kind-${value}`,
          href: linkTo("inbox", { name: value, search }),
          "aria-current": value === name ? "true" : undefined,
        },
        `${label} ${number}`,
      );
    replace(kinds, kind("", "All", open.length), ...[...counts].map(([each, number]) => kind(each, each, number)));
    if (focused.startsWith("kind-")) document.getElementById(focused)?.focus();
  }

  /** @param {Waiting} item */
  function line(item) {
    const key = keyOf(item);
    const box = element("input", {
      type: "checkbox",
      "aria-label": `Choose ${item.name}: ${item.what}`,
      onchange() {
        if (box.checked) chosen.add(key);
        else chosen.delete(key);
        drawBulk();
      },
    });
    const link = element(
      "a",
      {
        href: linkTo("inbox", { item: item.id, name, search }),
        onclick(event) {
          if (/** @type {MouseEvent} */ (event).metaKey || /** @type {MouseEvent} */ (event).ctrlKey) return;
          event.preventDefault();
          show(item.id, true);
        },
      },
      element("strong", {}, item.name),
      element("span", { class: "what" }, item.what),
    );
    return element(
      "li",
      {},
      box,
      element(
        "div",
        {},
        link,
        element(
          "p",
          { class: "meta" },
          `by ${item.by}`,
          item.user !== "" && element("span", {}, item.user),
          moment("for", item.since),
        ),
      ),
    );
  }

  /** @param {string} id @param {boolean} takesFocus */
  function show(id, takesFocus) {
    current = id;
    const item = listed.find((each) => each.id === id);
    for (const each of listed) {
      const link = lines.get(keyOf(each))?.querySelector("a");
      if (each !== item) link?.removeAttribute("aria-current");
      else {
        link?.setAttribute("aria-current", "true");
        if (takesFocus || shown !== "") link?.scrollIntoView({ block: "nearest" });
        if (takesFocus) link?.focus({ preventScroll: true });
      }
    }
    const key = item === undefined ? "nothing" : keyOf(item);
    if (key === shown) return;
    const isFirst = shown === "";
    shown = key;
    if (item === undefined) return replace(detail);
    // A look at the inbox without a choice has an address without one.
    if (!isFirst || query.has("item")) history.replaceState(null, "", linkTo("inbox", { item: id, name, search }));
    if (item.approval !== undefined) {
      replace(
        detail,
        approvalCard(place, item.approval, schemas.get(item.name), () => done(item)),
      );
      return;
    }
    if (item.execution !== undefined) showExecution(item, item.execution);
  }

  /** @param {Waiting} item @param {WorkflowExecution} execution */
  function showExecution(item, execution) {
    const { workflowId, id, userId, suspension, input } = execution;
    const path = `workflows/${segment(workflowId)}/executions/${segment(id)}`;
    const form = element("div");
    replace(
      detail,
      section(
        item.name,
        element(
          "p",
          { class: "meta" },
          element("a", { href: linkTo(path, whose(userId)) }, `Execution ${id}`),
          userId !== undefined && element("span", {}, `user ${userId}`),
        ),
        valueView(input),
      ),
      form,
    );
    treeOf(workflowId)
      .then((tree) => {
        if (shown !== keyOf(item)) return;
        const resume = async (/** @type {unknown} */ resumeData) => {
          await answerExecution(execution, resumeData);
          done(item);
        };
        replace(form, suspensionPanel(place, { suspension }, tree, resume));
      })
      .catch((error) => {
        trees.delete(workflowId);
        if (!signal.aborted) replace(form, problem(error));
      });
  }

  /** @param {WorkflowExecution} execution @param {unknown} resumeData */
  const answerExecution = ({ workflowId, id, userId }, resumeData) =>
    api.post(
      `workflows/${segment(workflowId)}/executions/${segment(id)}/resume?${new URLSearchParams({ userId: userId ?? "" })}`,
      resumeData === undefined ? {} : { resumeData },
      { signal },
    );

  /** @param {Waiting} item */
  function done(item) {
    answered.add(keyOf(item));
    chosen.delete(keyOf(item));
    announce(`${item.name}: answered. ${counted(draw(), "question")} left`);
    void ask().catch(() => {});
  }

  async function showDecided() {
    shown = "nothing";
    const [workflow, id, userId] = current.split("/");
    replace(detail, section("Answered", element("p", {}, "It does not wait any more.")));
    if (id !== undefined && workflow !== undefined) {
      const link = linkTo(`workflows/${segment(workflow)}/executions/${segment(id)}`, whose(userId));
      detail.firstElementChild?.append(element("p", {}, element("a", { href: link }, `To the execution ${id}`)));
      return;
    }
    const lately = (await Promise.all(OUTCOMES.map((status) => outcomes(status, 100)))).flat();
    const approval = lately.find(({ approvalId }) => approvalId === current);
    if (!signal.aborted && approval !== undefined) replace(detail, approvalCard(place, approval, null));
  }

  /** @param {string} status @param {number} limit @returns {Promise<Approval[]>} */
  const outcomes = (status, limit) =>
    api.get(`approvals?${new URLSearchParams({ status, limit: `${limit}`, order: "desc" })}`, { signal });

  function chooseAll() {
    for (const item of listed) {
      if (all.checked) chosen.add(keyOf(item));
      else chosen.delete(keyOf(item));
      const box = lines.get(keyOf(item))?.querySelector("input");
      if (box) box.checked = all.checked;
    }
    drawBulk();
  }

  const buttons = [true, false].map((approved) =>
    element("button", {
      type: "button",
      class: approved ? undefined : "plain",
      onclick: () => void answerAll(approved),
    }),
  );
  const outcome = element("div");
  bulk.append(
    field("Reason", reason, "Of all answers. Tools that asked are told."),
    element("div", { class: "actions" }, ...buttons),
  );
  bulk.after(outcome);

  function drawBulk() {
    bulk.hidden = chosen.size === 0;
    all.checked = chosen.size > 0 && chosen.size === listed.length;
    for (const [index, button] of buttons.entries())
      replace(button, `${index === 0 ? "Approve" : "Refuse"} ${chosen.size}`);
  }

  /** @param {Waiting} item @param {boolean} approved @param {string} why */
  async function answer({ approval, execution }, approved, why) {
    if (approval !== undefined) {
      const answer = { approved, ...(why !== "" && { reason: why }) };
      return api.post(`approvals/${segment(approval.approvalId)}`, answer, { signal });
    }
    if (execution === undefined) return;
    const step = allSteps(await treeOf(execution.workflowId)).find(({ path }) => path === execution.suspension?.stepId);
    const answer = answerAlone(step?.resumeSchema, approved);
    if (answer === null) throw new Error("it asks for more than yes or no");
    await answerExecution(execution, answer);
  }

  /** @param {boolean} approved */
  async function answerAll(approved) {
    const items = listed.filter((item) => chosen.has(keyOf(item)));
    const why = reason.value.trim();
    /** @type {string[]} */
    const failed = [];
    let at = 0;
    let answers = 0;
    replace(outcome);
    for (const button of buttons) button.disabled = true;
    const work = async () => {
      for (let item = items[at++]; item !== undefined && !signal.aborted; item = items[at++]) {
        try {
          await answer(item, approved, why);
          answered.add(keyOf(item));
          answers++;
        } catch (error) {
          failed.push(`${item.name} (${item.what}): ${error instanceof Error ? error.message : error}`);
        }
        replace(outcome, element("p", { class: "quiet" }, `${answers + failed.length} of ${items.length} answered`));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (signal.aborted) return;
    for (const button of buttons) button.disabled = false;
    const summary = `${counted(answers, "question")} ${approved ? "approved" : "refused"}`;
    announce(summary);
    reason.value = "";
    replace(outcome, element("p", {}, `${summary}.`), ...failed.map((text) => problem(`Not answered: ${text}`)));
    draw();
    await ask().catch(() => {});
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
    if (target instanceof HTMLElement && target.closest("textarea, select, input:not([type=checkbox])") !== null)
      return;
    const at = listed.findIndex(({ id }) => id === current);
    const next = { j: at + 1, k: at - 1 }[event.key];
    if (next !== undefined) {
      const id = listed[Math.min(Math.max(0, next), listed.length - 1)]?.id;
      if (id !== undefined) show(id, true);
    } else if (event.key === "x") {
      const item = listed[at];
      /** @type {HTMLInputElement | null | undefined} */
      const box = item && lines.get(keyOf(item))?.querySelector("input");
      box?.click();
    } else if (event.key === "a" || event.key === "d") {
      /** @type {HTMLElement | null} */
      const button = detail.querySelector(`[data-answer="${event.key === "a"}"]`);
      button?.click();
    } else return;
    event.preventDefault();
  }
  document.addEventListener("keydown", press, { signal });

  async function ask() {
    const before = new Set(found.map(keyOf));
    const [waiting, ...lately] = await Promise.all([
      allWaiting(api, signal),
      ...OUTCOMES.map((status) => outcomes(status, MOST_DECIDED)),
    ]);
    if (signal.aborted) return;
    if (differs.waiting(waiting) || shown === "") {
      found = waiting;
      const added = waiting.filter((item) => !before.has(keyOf(item)));
      if (before.size > 0 && added.length > 0) announce(`${counted(added.length, "new question")}`);
      draw();
    }
    const latest = lately.flat().sort((a, b) => Date.parse(b.decidedAt ?? "") - Date.parse(a.decidedAt ?? ""));
    if (!differs.decided(latest)) return;
    if (latest.length === 0) replace(decided, element("p", { class: "quiet" }, "Nothing yet."));
    else replace(decided, ...latest.slice(0, MOST_DECIDED).map((approval) => approvalCard(place, approval, null)));
  }

  void keepAsking(place, PAUSE, ask, failure);
}

/**
 * Puts elements in order, and leaves those alone that are in their place: one of them may have the focus.
 *
 * @param {HTMLElement} target
 * @param {readonly HTMLElement[]} items
 */
function arrange(target, items) {
  const wanted = new Set(/** @type {readonly Element[]} */ (items));
  for (const child of [...target.children]) if (!wanted.has(child)) child.remove();
  for (const [index, item] of items.entries()) {
    const present = target.children[index] ?? null;
    if (present !== item) target.insertBefore(item, present);
  }
}
