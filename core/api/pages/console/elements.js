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
    else if (value !== false && value !== undefined) target.setAttribute(name, String(value));
  }
  target.append(...nodesOf(children));
  return target;
}

/**
 * @param {readonly Child[]} children
 * @returns {(Node | string)[]}
 */
export function nodesOf(children) {
  const given = children.filter((child) => child !== null && child !== undefined && child !== false);
  return given.map((child) => (typeof child === "number" ? String(child) : child));
}

/**
 * @param {Element} target
 * @param {...Child} children
 */
export function replace(target, ...children) {
  target.replaceChildren(...nodesOf(children));
}
