/** Makes elements without markup: data becomes text or the value of an attribute, never HTML. */

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | undefined | ((event: Event) => void)>} Attributes */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes] a function is a listener of the event after `on`; true is an attribute without a value; false and
 *   undefined are left out
 * @param {...Child} children null, undefined and false are nothing
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * The same for SVG.
 *
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @template {Element} E
 * @param {E} target
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function filled(target, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") target.addEventListener(name.slice(2), value);
    else if (value === true) target.setAttribute(name, "");
    else if (value !== false && value !== undefined)
      target.setAttribute(name, READ.has(name) ? plain(String(value)) : String(value));
  }
  if (target instanceof HTMLTextAreaElement) target.append(children.join(""));
  // SVG has no bdi.
  else target.append(...(target instanceof HTMLElement ? nodesOf(children) : nodesOf(children).map(withoutBdi)));
  return target;
}

/** Attributes that people read. */
const READ = new Set(["title", "aria-label", "placeholder", "label", "alt"]);

/** Characters that turn the text around them, wherever it comes from. */
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
/** Letters that are written from right to left, and take digits and signs beside them along. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/**
 * The text with such characters as escapes, so that it cannot show another text than it is.
 *
 * @param {string} text
 */
export const plain = (text) =>
  text.replace(TURNING, (sign) => `\\u${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`);

/** @param {Node | string} node */
const withoutBdi = (node) => (node instanceof HTMLElement && node.tagName === "BDI" ? (node.textContent ?? "") : node);

/**
 * @param {readonly Child[]} children
 * @returns {(Node | string)[]}
 */
export function nodesOf(children) {
  const given = children.filter((child) => child !== null && child !== undefined && child !== false);
  return given.map((child) => {
    if (child instanceof Node) return child;
    const text = plain(String(child));
    if (!RIGHT_TO_LEFT.test(text)) return text;
    const isolated = document.createElement("bdi");
    isolated.append(text);
    return isolated;
  });
}

/**
 * @param {Element} target
 * @param {...Child} children
 */
export function replace(target, ...children) {
  target.replaceChildren(...nodesOf(children));
}
