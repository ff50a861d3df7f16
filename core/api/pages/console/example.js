/** Makes an example of a JSON Schema, to begin with in a form. It nearly always fits. */

/** @typedef {{ [keyword: string]: unknown }} Schema */

/** Nobody reads a form that is deeper. */
const DEEPEST = 6;

/**
 * @param {unknown} schema
 * @param {number} [depth]
 * @returns {unknown}
 */
export function exampleOf(schema, depth = 0) {
  if (typeof schema !== "object" || schema === null || depth > DEEPEST) return null;
  const given = /** @type {Schema} */ (schema);
  for (const keyword of ["const", "default"]) if (given[keyword] !== undefined) return given[keyword];
  for (const keyword of ["examples", "enum"]) {
    const values = given[keyword];
    if (Array.isArray(values) && values.length > 0) return values[0];
  }
  for (const keyword of ["anyOf", "oneOf", "allOf"]) {
    const choices = given[keyword];
    if (Array.isArray(choices) && choices.length > 0) return exampleOf(choices[0], depth + 1);
  }
  return exampleOfType(given, depth);
}

/** @param {Schema} schema @param {number} depth */
function exampleOfType(schema, depth) {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  switch (type) {
    case "string":
      return "";
    case "boolean":
      return false;
    case "number":
    case "integer":
      return numberFor(schema);
    case "array":
      return [];
    case "null":
      return null;
    default:
      return objectFor(schema, depth);
  }
}

/** @param {Schema} schema */
function numberFor({ minimum, exclusiveMinimum }) {
  if (typeof minimum === "number") return minimum;
  return typeof exclusiveMinimum === "number" ? Math.floor(exclusiveMinimum) + 1 : 0;
}

/** @param {Schema} schema @param {number} depth */
function objectFor({ properties }, depth) {
  const held = typeof properties === "object" && properties !== null ? Object.entries(properties) : [];
  return Object.fromEntries(held.map(([name, property]) => [name, exampleOf(property, depth + 1)]));
}
