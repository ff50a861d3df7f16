/** Questions that wait for a person, and what was decided lately. */
import { approvalCard, toolSchemas } from "./approval-card.js";
import { element, replace } from "./elements.js";
import { changes, keepAsking } from "./live.js";
import { section } from "./parts.js";

/** @import { Approval } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** Between two requests, in milliseconds. */
const PAUSE = 3000;
const MOST_OPEN = 100;
/** Of those that were decided, for each outcome. */
const MOST_DECIDED = 10;
const OUTCOMES = ["approved", "denied", "expired", "withdrawn"];

/** @param {Place} place */
export async function approvalsView(place) {
  const { api, signal, body, announce, count, keepFocus } = place;
  const failure = element("div");
  const open = element("div");
  const decided = element("div");
  body.append(failure, section("Open", open), section("Decided lately", decided));
  const schemas = await toolSchemas(place);
  /** Cards by id. What was typed into one stays when others come and go. @type {Map<string, HTMLElement>} */
  const cards = new Map();
  const differs = { open: changes(), decided: changes() };

  /** @param {string} status @param {number} limit @returns {Promise<Approval[]>} */
  const list = (status, limit) =>
    api.get(`approvals?${new URLSearchParams({ status, limit: `${limit}`, order: "desc" })}`, { signal });

  /** @param {readonly Approval[]} found */
  function showOpen(found) {
    const ids = new Set(found.map(({ approvalId }) => approvalId));
    for (const id of cards.keys()) if (!ids.has(id)) cards.delete(id);
    const before = cards.size;
    for (const approval of found) {
      const { approvalId, toolName } = approval;
      if (cards.has(approvalId)) continue;
      cards.set(
        approvalId,
        approvalCard(place, approval, schemas.get(toolName), () => void ask().catch(() => {})),
      );
      if (before > 0) announce(`A new question: ${toolName}`);
    }
    const hadFocus = open.contains(document.activeElement);
    arrange(
      open,
      found.map(({ approvalId }) => cards.get(approvalId) ?? element("div")),
      "Nothing waits for a person.",
    );
    if (hadFocus) keepFocus();
  }

  async function ask() {
    const [found, ...outcomes] = await Promise.all([
      list("open", MOST_OPEN),
      ...OUTCOMES.map((status) => list(status, MOST_DECIDED)),
    ]);
    if (signal.aborted) return;
    count("approvals", found.length);
    if (differs.open(found)) showOpen(found);
    const latest = outcomes.flat().sort((a, b) => Date.parse(b.decidedAt ?? "") - Date.parse(a.decidedAt ?? ""));
    if (!differs.decided(latest)) return;
    arrange(
      decided,
      latest.map((approval) => approvalCard(place, approval, null)),
      "Nothing yet.",
    );
  }

  void keepAsking(place, PAUSE, ask, failure);
}

/**
 * Puts elements in order, and leaves those alone that are in their place: one of them may have the focus.
 *
 * @param {HTMLElement} target
 * @param {readonly HTMLElement[]} items
 * @param {string} none what is said where there are none
 */
function arrange(target, items, none) {
  if (items.length === 0) return replace(target, element("p", { class: "quiet" }, none));
  const wanted = new Set(/** @type {readonly Element[]} */ (items));
  for (const child of [...target.children]) if (!wanted.has(child)) child.remove();
  for (const [index, item] of items.entries()) {
    const present = target.children[index] ?? null;
    if (present !== item) target.insertBefore(item, present);
  }
}
