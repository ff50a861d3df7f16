/** Checks that a file exports a plugin of the kind of its folder. */
import { isObject } from "../lib/is-object.ts";
import { suggest } from "../manifest/issues.ts";
import type { Plugin, PluginKind } from "../plugin/plugin.ts";
import { fieldName, fieldProblems, isKind, kindRow } from "./kinds.ts";

type Shaped = { plugin: Plugin; problems: [] } | { plugin: null; problems: string[] };

const rejected = (...problems: string[]): Shaped => ({ plugin: null, problems });

/** @param namespace the result of `import()` */
export function checkShape(namespace: Record<string, unknown>, kind: PluginKind): Shaped {
  const exported = unwrapDefault(namespace);
  if (exported === undefined) return rejected(`has no default export: write export default { kind: "${kind}", ... }`);
  if (!isObject(exported))
    return rejected(`the default export must be an object with kind: "${kind}", not ${typeName(exported)}`);
  if (exported.kind === undefined)
    return rejected(`kind is missing: add kind: "${kind}", or export through ${helperName(kind)} of #plugin`);
  if (exported.kind !== kind) return rejected(wrongKind(exported.kind, kind));
  const { fields } = kindRow(kind);
  const problems = [...fieldProblems(exported, fields), ...misspelled(exported, fields.map(fieldName))];
  return problems.length > 0 ? rejected(...problems) : { plugin: exported as unknown as Plugin, problems: [] };
}

/** The default export. A CommonJS module seen from an ES module has its exports, including `default`, inside `default`. */
function unwrapDefault({ default: value }: Record<string, unknown>, depth = 2): unknown {
  const isModule = isObject(value) && value.kind === undefined && ("__esModule" in value || "default" in value);
  return isModule && depth > 0 ? unwrapDefault(value, depth - 1) : value;
}

function wrongKind(found: unknown, kind: PluginKind): string {
  const { folder } = kindRow(kind);
  if (!isKind(found)) return `kind must be "${kind}" in ${folder}/, not ${JSON.stringify(found) ?? typeName(found)}`;
  return `kind is "${found}", but the file is in ${folder}/: move it to ${kindRow(found).folder}/, or make it kind: "${kind}"`;
}

/** Finds misspelt optional fields, which would be ignored silently. A key that resembles no field is the author's own. */
function misspelled(plugin: Record<string, unknown>, known: readonly string[]): string[] {
  return Object.keys(plugin).flatMap((key) => {
    const meant = known.includes(key) ? undefined : suggest(key, known);
    return meant === undefined || plugin[meant] !== undefined ? [] : [`unknown key "${key}", did you mean "${meant}"?`];
  });
}

const helperName = (kind: PluginKind) => `define${kind.charAt(0).toUpperCase()}${kind.slice(1)}`;

function typeName(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : `a ${typeof value}`;
}
