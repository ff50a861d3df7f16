/** Emphasis, code and links inside a line of Markdown, as elements: never HTML, whatever a model says. */
import { element } from "./elements.js";

/** @import { Child } from "./elements.js" */

/**
 * Each alternative ends at the next sign of its kind or after a bounded number of characters, so that no text costs more than its
 * length.
 */
const INLINE =
  /\\([\\`*_[\]()#>~|-])|`([^`\n]{1,2000})`|\*\*([^*\n]{1,2000})\*\*|\*([^\s*][^*\n]{0,1000})\*|~~([^~\n]{1,1000})~~|\[([^[\]\n]{1,500})\]\(([^()\s]{1,2000})\)|(https?:\/\/[^\s<>()[\]"']{1,2000})/g;
/** What a link may lead to: nothing that runs in this page. */
const SAFE = /^(?:https?:\/\/|mailto:)/i;

/** @param {string} text @param {string} address @returns {Child} */
function link(text, address) {
  if (!SAFE.test(address)) return text;
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, text);
}

/** @param {string} text @returns {Child[]} */
export function inlineNodes(text) {
  /** @type {Child[]} */
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, escaped, code, strong, emphasis, struck, label, target, address] = match;
    nodes.push(text.slice(at, match.index));
    at = match.index + whole.length;
    if (escaped !== undefined) nodes.push(escaped);
    else if (code !== undefined) nodes.push(element("code", {}, code));
    else if (strong !== undefined) nodes.push(element("strong", {}, strong));
    else if (emphasis !== undefined) nodes.push(element("em", {}, emphasis));
    else if (struck !== undefined) nodes.push(element("s", {}, struck));
    else if (label !== undefined && target !== undefined) nodes.push(link(label, target));
    else if (address !== undefined) nodes.push(link(address, address));
  }
  nodes.push(text.slice(at));
  return nodes;
}
