/** Fields for a value that a JSON Schema describes: one for each property of a plain object, else one for the JSON. */
import { element, plain } from "./elements.js";
import { exampleOf } from "./example.js";
import { jsonText } from "./formats.js";
import { field } from "./parts.js";

/** @typedef {{ body: HTMLElement, read(): unknown }} ValueFields `read` throws an Error that says what is wrong */
/** @typedef {{ type?: unknown, enum?: unknown, default?: unknown, description?: unknown }} Property */

/**
 * A field for JSON.
 *
 * @param {string} id
 * @param {string} label
 * @param {unknown} value undefined leaves it empty
 * @param {string} [hint]
 * @returns {ValueFields} an empty field is undefined
 */
export function jsonField(id, label, value, hint) {
  const text = jsonText(value);
  const rows = Math.min(12, Math.max(2, text.split("\n").length));
  const control = element("textarea", { id, rows, spellcheck: "false", class: "code" }, plain(text));
  return {
    body: field(label, control, hint),
    read() {
      if (control.value.trim() === "") return undefined;
      try {
        return JSON.parse(control.value);
      } catch (error) {
        control.focus();
        throw new Error(`${label}: this is not JSON: ${error instanceof Error ? error.message : error}`);
      }
    },
  };
}

/**
 * @param {string} id
 * @param {string} label of the field when there is one
 * @param {unknown} schema
 * @param {unknown} [value] to begin with; default: an example where there is one field for JSON
 * @returns {ValueFields}
 */
export function valueFields(id, label, schema, value) {
  const properties = plainProperties(schema);
  const given = /** @type {Record<string, unknown>} */ (isObject(value) ? value : {});
  // A value may have more than its schema tells of, which no field would show.
  const fits =
    properties !== null &&
    (value === undefined || Object.keys(given).every((key) => properties.some(([name]) => name === key)));
  if (properties === null || !fits || (value !== undefined && !isObject(value)))
    return jsonField(id, label, value === undefined ? (schema === null ? undefined : exampleOf(schema)) : value);
  const fields = properties.map(([name, property]) => ({
    name,
    ...propertyField(`${id}-${name}`, name, property, given[name]),
  }));
  return {
    body: element("fieldset", {}, element("legend", {}, label), ...fields.map(({ body }) => body)),
    read: () =>
      Object.fromEntries(fields.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined)),
  };
}

/**
 * Properties of an object that holds nothing but texts, numbers, booleans and choices; else null.
 *
 * @param {unknown} schema
 * @returns {[name: string, property: Property][] | null}
 */
function plainProperties(schema) {
  if (typeof schema !== "object" || schema === null || !("properties" in schema)) return null;
  const { properties } = schema;
  if (typeof properties !== "object" || properties === null) return null;
  const held = Object.entries(properties);
  return held.length > 0 && held.every(([, property]) => isPlain(property)) ? held : null;
}

/** @param {unknown} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {Property | null} property */
const isPlain = (property) =>
  Array.isArray(property?.enum) || ["string", "number", "integer", "boolean"].includes(String(property?.type));

/** @param {string} id @param {string} name @param {Property} property @param {unknown} value @returns {ValueFields} */
function propertyField(id, name, { type, enum: choices, description, default: usual }, value = usual) {
  const hint = typeof description === "string" ? description : undefined;
  if (Array.isArray(choices)) {
    const options = choices.map((choice, index) =>
      element("option", { value: index, selected: choice === value }, String(choice)),
    );
    const select = element("select", { id }, ...options);
    return { body: field(name, select, hint), read: () => choices[Number(select.value)] };
  }
  if (type === "boolean") {
    const box = element("input", { id, type: "checkbox", checked: value === true });
    return {
      body: element("div", { class: "check" }, box, element("label", { for: id }, name)),
      read: () => box.checked,
    };
  }
  const isText = type === "string";
  const shown = value === undefined || value === null ? "" : String(value);
  // A line has no line breaks: a browser would drop them.
  const control = shown.includes("\n")
    ? element("textarea", { id, rows: 4 }, shown)
    : element("input", { id, type: isText ? "text" : "number", step: "any", value: shown });
  const read = () => {
    if (control.value === "") return isText && value === "" ? "" : undefined;
    return isText ? control.value : Number(control.value);
  };
  return { body: field(name, control, hint), read };
}
