/** The manual: a list of chapters, a search, and one chapter at a time, which the part of the address behind `#` names. */
import { element, replace } from "./elements.js";
import { markdownBlocks } from "./markdown.js";

/** Names and sections of the chapters: of each its heading, and its words. @typedef {[string, [string, string][]][]} Index */

/** What a reader begins with, in this order. The others follow by their names. */
const FIRST = ["tutorial.md", "getting-started.md", "manifest.md", "recipes.md", "troubleshooting.md", "runbook.md"];
const MOST_FOUND = 40;

// The manual needs no key: the history and the screen would show it, and so would every link.
const address = new URL(location.href);
for (const name of ["key", "token"]) address.searchParams.delete(name);
history.replaceState(history.state, "", address);

const version = document.getElementById("manual")?.dataset.version ?? "";
/** @param {string} name */
const addressOf = (name) => new URL(`docs/${name}?v=${version}`, location.href).href;

/** @param {string} heading as links of Markdown name it */
const anchorOf = (heading) =>
  heading
    .toLowerCase()
    .replace(/[^\w -]/g, "")
    .replaceAll(" ", "-");

/** @param {string} line */
const titleOf = (line) => line.replace(/^#+ /, "").replaceAll("`", "");

/** @param {string} name @param {string} [heading] */
const placeOf = (name, heading) => `#${name.slice(0, -3)}${heading === undefined ? "" : `:${anchorOf(heading)}`}`;

/** @param {string} name */
const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

/** @type {{ index: Index }} */
const { index } = await import(addressOf("index.js"));
const chapters = [...index].sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1));
const known = new Set(chapters.map(([name]) => name));

/**
 * Markdown of the manual as the module for it reads it: paragraphs in one line, and links with whole addresses. A link to a file
 * that is no chapter is its text alone.
 *
 * @param {string} text @param {string} name
 */
function prepared(text, name) {
  const folder = name.split(".").length > 2 ? `${name.split(".")[0]}/` : "";
  /** @param {string} label @param {string} target */
  const link = (label, target) => {
    if (/^[a-z]+:/.test(target)) return `[${label}](${target})`;
    const [file = "", heading] = target.split("#");
    const { pathname } = new URL(
      file === "" ? (folder === "" ? name : name.replace(".", "/")) : `${folder}${file}`,
      "http://docs/docs/",
    );
    const chapter = pathname.replace("/docs/", "").replace("/", ".");
    const place = `${placeOf(chapter)}${heading === undefined ? "" : `:${heading}`}`;
    return known.has(chapter) ? `[${label.replaceAll("`", "")}](${new URL(place, location.href).href})` : label;
  };
  return text
    .split("<!--")
    .map((part, index) => (index === 0 ? part : part.slice(part.indexOf("-->") + 3).replace(/^\n/, "")))
    .join("")
    .split(/(^```.*?^```$)/ms)
    .map((part) =>
      part.startsWith("```")
        ? part
        : part
            .replaceAll("\\|", "\u2223")
            .replace(/(?<=[^\n|])\n(?![\n#>|\s]|[-*] |\d+\. )/g, " ")
            .replace(/<(https?:[^<>\s]+)>/g, "$1")
            .replace(/\[([^[\]]+)\]\(([^()\s]+)\)/g, (_, label, target) => link(label, target)),
    )
    .join("");
}

/** Headings of the module are those of a part of a page; here they are those of the page. @param {HTMLElement} block */
function ofPage(block) {
  const level = ["H4", "H5", "H6"].indexOf(block.tagName);
  if (level !== -1) {
    const tag = /** @type {const} */ (["h1", "h2", "h3"])[level] ?? "h3";
    const heading = element(tag, { id: anchorOf(block.textContent ?? ""), tabindex: -1 }, ...block.childNodes);
    return heading;
  }
  for (const link of block.querySelectorAll("a")) {
    const { origin, pathname } = new URL(link.href);
    if (origin === location.origin && pathname === location.pathname) link.removeAttribute("target");
  }
  return block;
}

const list = element("ul", { id: "chapters" });
const search = element("input", { type: "search", placeholder: "Search", "aria-label": "Search", oninput: showList });
const main = element("main", { class: "manual said markdown", id: "view", tabindex: -1 });
const home = element("p", {}, element("a", { href: "./" }, "Console"));
document.body.append(element("nav", { class: "manual", "aria-label": "Manual" }, home, search, list), main);

/** Sections that have all words, or words that begin so; without any the chapters. */
function showList() {
  const words = search.value.toLowerCase().match(/[\p{L}\d_]+/gu);
  /** @param {string} place @param {...string} texts */
  const row = (place, ...texts) => element("li", {}, element("a", { href: place }, texts.join(" › ")));
  if (words === null)
    return replace(list, ...chapters.map(([name, [[title] = [""]]]) => row(placeOf(name), titleOf(title ?? ""))));
  const found = chapters.flatMap(([name, sections]) =>
    sections
      .filter(([, text]) => words.every((word) => ` ${text}`.includes(` ${word}`)))
      .map(([heading]) => ({ name, title: titleOf(sections[0]?.[0] ?? ""), heading: titleOf(heading) })),
  );
  /** What is named by the words goes first. @param {{ heading: string }} section */
  const isNamed = ({ heading }) => words.every((word) => heading.toLowerCase().includes(word));
  const rows = [...found.filter(isNamed), ...found.filter((section) => !isNamed(section))]
    .slice(0, MOST_FOUND)
    .map(({ name, title, heading }) => row(placeOf(name, heading), title, ...(title === heading ? [] : [heading])));
  replace(list, ...(rows.length === 0 ? [element("li", {}, "Nothing has all of these words.")] : rows));
}

async function showChapter() {
  const [chapter = "", heading] = location.hash.slice(1).split(":");
  const name = known.has(`${chapter}.md`) ? `${chapter}.md` : (chapters[0]?.[0] ?? "");
  if (main.dataset.chapter !== name) {
    main.dataset.chapter = name;
    const reply = await fetch(addressOf(name)).catch(() => null);
    const text = reply?.ok ? await reply.text() : "# This chapter could not be loaded";
    if (main.dataset.chapter !== name) return;
    if (!reply?.ok) main.dataset.chapter = "";
    replace(main, ...markdownBlocks(prepared(text, name)).map(ofPage));
    document.title = `${main.querySelector("h1")?.textContent ?? "Manual"} · Manual`;
    scrollTo(0, 0);
  }
  const place = heading === undefined ? main : document.getElementById(heading);
  place?.scrollIntoView();
  place?.focus({ preventScroll: true });
}

showList();
await showChapter();
addEventListener("hashchange", () => void showChapter());
