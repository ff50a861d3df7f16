/**
 * Markdown as elements: headings, paragraphs, lists, quotes, tables and code. It is made of nodes and texts, never of HTML. Each line
 * is looked at once.
 */
import { element, nodesOf } from "./elements.js";
import { inlineNodes } from "./markdown-inline.js";

const FENCE = /^ {0,3}(```|~~~)\s*([\w+-]{0,30})/;
/** With `s`, here and below: a sign that ends lines would make the pattern try all ways to share the blanks before it. */
const HEADING = /^(#{1,6})\s+(.*)$/s;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
const ITEM = /^(\s{0,40})(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/s;
const QUOTE = /^ {0,3}> ?(.*)$/s;
const TABLE_LINE = /^[\s:|-]+$/;

/** @param {string} line */
const isBlank = (line) => line.trim() === "";

/** @param {readonly string[]} lines @param {number} at */
const isTable = (lines, at) =>
  (lines[at] ?? "").includes("|") && (lines[at + 1] ?? "").includes("-") && TABLE_LINE.test(lines[at + 1] ?? "");

/** @param {readonly string[]} lines @param {number} at */
const beginsBlock = (lines, at) => {
  const line = lines[at] ?? "";
  return [FENCE, HEADING, RULE, ITEM, QUOTE].some((form) => form.test(line)) || isTable(lines, at);
};

/** @param {string} text @returns {HTMLElement[]} */
export function markdownBlocks(text) {
  const lines = text.split("\n");
  /** @type {HTMLElement[]} */
  const blocks = [];
  let at = 0;
  /** Lines from here on that fit. @param {(line: string, place: number) => boolean} fits */
  const takeWhile = (fits) => {
    const begin = at;
    while (at < lines.length && fits(lines[at] ?? "", at)) at++;
    return lines.slice(begin, at);
  };
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const [, fence] = FENCE.exec(line) ?? [];
    const [, marks, title] = HEADING.exec(line) ?? [];
    if (isBlank(line)) at++;
    else if (fence !== undefined) {
      at++;
      const code = takeWhile((each) => !each.trimStart().startsWith(fence));
      at++;
      blocks.push(codeBlock(code.join("\n")));
    } else if (marks !== undefined) {
      at++;
      blocks.push(heading(marks.length, title ?? ""));
    } else if (RULE.test(line)) {
      at++;
      blocks.push(element("hr"));
    } else if (QUOTE.test(line)) {
      const quoted = takeWhile((each) => QUOTE.test(each)).map((each) => QUOTE.exec(each)?.[1] ?? "");
      blocks.push(element("blockquote", {}, ...paragraph(quoted)));
    } else if (isTable(lines, at)) blocks.push(tableBlock(takeWhile((each) => each.includes("|"))));
    else if (ITEM.test(line)) blocks.push(listBlock(takeWhile((each) => ITEM.test(each) || /^\s+\S/.test(each))));
    else {
      const begin = at;
      blocks.push(
        element(
          "p",
          {},
          ...paragraph(takeWhile((each, place) => !isBlank(each) && (place === begin || !beginsBlock(lines, place)))),
        ),
      );
    }
  }
  return blocks;
}

/** Lines of a paragraph stay lines: models write them so. @param {readonly string[]} lines */
const paragraph = (lines) => lines.flatMap((line, index) => [index > 0 && element("br"), ...inlineNodes(line)]);

/** Below the headings of the page. @param {number} level @param {string} title */
const heading = (level, title) => {
  const tag = /** @type {const} */ (["h4", "h5", "h6"])[Math.min(level, 3) - 1] ?? "h6";
  return element(tag, {}, ...inlineNodes(title));
};

/** @param {string} code */
const codeBlock = (code) =>
  // It may scroll, so the keyboard must be able to reach it.
  element("pre", { class: "json", tabindex: 0, role: "group", "aria-label": "Code" }, code);

/** @param {string} line */
const cellsOf = (line) =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());

/** @param {readonly string[]} lines the second one has no cells */
function tableBlock([head = "", , ...rows]) {
  const heads = cellsOf(head);
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" },
    element(
      "table",
      {},
      element(
        "thead",
        {},
        element("tr", {}, ...heads.map((cell) => element("th", { scope: "col" }, ...inlineNodes(cell)))),
      ),
      element(
        "tbody",
        {},
        ...rows.map((row) =>
          element(
            "tr",
            {},
            ...cellsOf(row)
              .slice(0, heads.length)
              .map((cell) => element("td", {}, ...inlineNodes(cell))),
          ),
        ),
      ),
    ),
  );
}

/** Items that are indented further are in a list of the item above them. @param {readonly string[]} lines */
function listBlock(lines) {
  /** @type {{ indent: number, list: HTMLElement, item: HTMLElement | null }[]} */
  const open = [];
  const holder = element("div");
  for (const line of lines) {
    const [, space = "", , number, text = ""] = ITEM.exec(line) ?? [];
    const top = open.at(-1);
    if (!ITEM.test(line)) {
      top?.item?.append(" ", ...nodesOf(inlineNodes(line.trim())));
      continue;
    }
    while (open.length > 1 && (open.at(-1)?.indent ?? 0) > space.length) open.pop();
    if (open.length === 0 || (open.at(-1)?.indent ?? 0) < space.length) {
      const list = number === undefined ? element("ul") : element("ol", { start: number });
      (open.at(-1)?.item ?? holder).append(list);
      open.push({ indent: space.length, list, item: null });
    }
    const place = open.at(-1);
    const item = element("li", {}, ...inlineNodes(text));
    place?.list.append(item);
    if (place !== undefined) place.item = item;
  }
  return /** @type {HTMLElement} */ (holder.firstElementChild ?? holder);
}
