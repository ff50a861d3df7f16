/** Generates the text of every file of `generated/` from the schemas. */

import { Ajv2020, type Options } from "ajv/dist/2020.js";
import standalone from "ajv/dist/standalone/index.js";
import formats from "ajv-formats";
import { build, type Plugin } from "esbuild";
import { compile } from "json-schema-to-typescript";
import { boundErrors } from "../lib/bounded-errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import { isWritten, readSources, type SchemaDefinition, type SchemaFile, type SchemaProblem } from "./sources.ts";

/* `generated/*validators.js`: Ajv's standalone code of the definitions, bundled to ESM files without `require`. */

type Flavour = "written" | "query" | "plain";

/**
 * Files that people write get their defaults here, and errors that include their schema (known keys for "did you mean"). Queries are
 * text, so numbers are converted. Bodies are checked unchanged: defaults would override an agent's own options.
 */
const FLAVOURS: Readonly<Record<Flavour, Options>> = {
  written: { useDefaults: true, verbose: true },
  query: { coerceTypes: true },
  plain: {},
};

/** Most errors of one list or map: the author of a manifest should see all of them at once. */
const MAX_ERRORS: Readonly<Record<Flavour, number>> = { written: 1_000, query: 20, plain: 20 };

const COMMON: Options = {
  allErrors: true,
  strict: true,
  strictTypes: false,
  strictRequired: false,
  allowUnionTypes: true,
  allowMatchingProperties: true,
  // Inline only small definitions: the module is read at every start.
  inlineRefs: 5,
  code: { source: true, esm: true, lines: true },
};

/** Keywords for the type generator, for editors, and for the texts of our own messages. */
const VOCABULARY = ["tsType", "errorMessage", "patternErrorMessage", "example"];

function chooseFlavour(definition: SchemaDefinition): Flavour {
  if (isWritten(definition)) return "written";
  return definition.name.endsWith("Query") ? "query" : "plain";
}

function createAjv(flavour: Flavour): Ajv2020 {
  const ajv = new Ajv2020({ ...COMMON, ...FLAVOURS[flavour] });
  boundErrors(ajv, MAX_ERRORS[flavour]);
  // The default export of a CommonJS module is seen one level too deep by TypeScript.
  (formats as unknown as (instance: Ajv2020) => void)(ajv);
  ajv.addVocabulary(VOCABULARY);
  return ajv;
}

/** The definitions that compile; the others are named in `problems`. */
function compilable(
  files: SchemaFile[],
  definitions: SchemaDefinition[],
  problems: SchemaProblem[],
): SchemaDefinition[] {
  const instances = new Map<Flavour, Ajv2020>();
  for (const flavour of Object.keys(FLAVOURS) as Flavour[]) {
    const ajv = createAjv(flavour);
    instances.set(flavour, ajv);
    for (const file of files) {
      try {
        ajv.addSchema(file.document);
      } catch (error) {
        if (flavour === "plain") problems.push({ file: file.path, message: (error as Error).message });
      }
    }
  }
  return definitions.filter((definition) => {
    try {
      return instances.get(chooseFlavour(definition))!.getSchema(definition.reference) !== undefined;
    } catch (error) {
      problems.push({ file: definition.file, message: `$defs.${definition.name}: ${(error as Error).message}` });
      return false;
    }
  });
}

/**
 * The definitions that a start or a request needs, which are in a small module of their own: the manifest, files of evals, bodies and
 * queries of requests. The validator of the manifest contains those of its parts; replies and events are validated only in tests.
 */
function servedDefinitions(definitions: readonly SchemaDefinition[]): SchemaDefinition[] {
  return definitions.filter(({ name }) => /^(Manifest|EvalFile|ContentResult)$|(Request|Query)$/.test(name));
}

/** The content of a module's `validators`. All `definitions` must compile. */
interface ValidatorModule {
  definitions: readonly SchemaDefinition[];
  /** Another module whose `validators` it exports too. */
  extended?: string;
}

/** The text of the module, without the head comment. */
async function generateValidators(
  root: string,
  files: SchemaFile[],
  { definitions, extended }: ValidatorModule,
): Promise<string> {
  const modules = new Map<string, string>();
  const entry: string[] = [];
  const members: string[] = [];
  if (extended !== undefined) entry.push(`import { validators as extended } from "${extended}";`);
  for (const flavour of Object.keys(FLAVOURS) as Flavour[]) {
    const own = definitions.filter((definition) => chooseFlavour(definition) === flavour);
    if (own.length === 0) continue;
    const ajv = createAjv(flavour);
    for (const file of files) ajv.addSchema(file.document);
    const exports = Object.fromEntries(own.map(({ name, reference }) => [name, reference]));
    modules.set(flavour, (standalone as unknown as { default: typeof standalone.default }).default(ajv, exports));
    entry.push(`import * as ${flavour} from "${flavour}";`);
    members.push(...own.map(({ name }) => `  ${name}: ${flavour}.${name},`));
  }
  members.sort();
  if (extended !== undefined) members.unshift("  ...extended,");
  modules.set("entry", `${entry.join("\n")}\nexport const validators = {\n${members.join("\n")}\n};\n`);
  return bundle(root, modules, extended === undefined ? [] : [extended]);
}

async function bundle(root: string, modules: ReadonlyMap<string, string>, external: string[]): Promise<string> {
  const virtual: Plugin = {
    name: "schemas",
    setup(setup) {
      setup.onResolve({ filter: /^(entry|written|query|plain)$/ }, ({ path }) => ({ path, namespace: "schemas" }));
      setup.onLoad({ filter: /.*/, namespace: "schemas" }, ({ path }) => ({
        contents: modules.get(path) ?? "",
        loader: "js",
        resolveDir: root,
      }));
    },
  };
  const result = await build({
    entryPoints: ["entry"],
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    mainFields: ["main"],
    target: "node20",
    external,
    // Every start reads the file, and minified it has half the bytes.
    minifyWhitespace: true,
    minifySyntax: true,
    lineLimit: 2_000,
    absWorkingDir: root,
    // Paths are part of the output: they must not depend on the real location of node_modules.
    preserveSymlinks: true,
    legalComments: "none",
    logLevel: "silent",
    plugins: [virtual],
  });
  return result.outputFiles[0]!.text;
}

/** Keywords that contain schemas: a property named `title` is not mistaken for the keyword. */
const MAPS = ["properties", "patternProperties", "$defs", "dependentSchemas"];
const LISTS = ["allOf", "anyOf", "oneOf"];
const SINGLES = ["items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"];

/** A copy of `schema` with `change` applied to every direct subschema. */
function mapSubschemas(schema: JsonSchema, change: (subschema: JsonSchema) => JsonSchema): JsonSchema {
  const apply = (value: unknown) => (isObject(value) ? change(value) : value);
  const copy: JsonSchema = {};
  for (const [key, value] of Object.entries(schema)) {
    if (MAPS.includes(key) && isObject(value)) {
      copy[key] = Object.fromEntries(Object.entries(value).map(([name, subschema]) => [name, apply(subschema)]));
    } else if (LISTS.includes(key) && Array.isArray(value)) copy[key] = value.map(apply);
    else copy[key] = SINGLES.includes(key) ? apply(value) : value;
  }
  return copy;
}

/** The name of the definition that a `$ref` points to: `common.json#/$defs/User` -> `User`; null for anything else. */
function referencedName(reference: unknown): string | null {
  return typeof reference === "string" ? (/#\/\$defs\/([A-Za-z0-9]+)$/.exec(reference)?.[1] ?? null) : null;
}

/** A copy with every `$ref` rewritten to `#/$defs/NAME`. */
function rewriteReferences(schema: JsonSchema): JsonSchema {
  const name = referencedName(schema.$ref);
  const copy = mapSubschemas(schema, rewriteReferences);
  return name === null ? copy : { ...copy, $ref: `#/$defs/${name}` };
}

const OPTIONS = {
  bannerComment: "",
  additionalProperties: false,
  declareExternallyReferenced: false,
  format: true,
  style: { printWidth: 120 },
} as const;

/** Unsupported keywords: json-schema-to-typescript makes `never[]` of the first and ignores the others silently. */
const REFUSED = ["prefixItems", "unevaluatedProperties", "unevaluatedItems"];

/** The types, one per definition, without the head comment. Definitions that fail are named in `problems` and left out. */
async function generateTypes(definitions: readonly SchemaDefinition[], problems: SchemaProblem[]): Promise<string> {
  const blocks: string[] = [];
  const names: string[] = [];
  for (const definition of definitions) {
    try {
      const view = typeView(definition.schema, isWritten(definition));
      // Each definition is compiled separately: a reference becomes the name of the other one, so nothing is numbered or repeated.
      blocks.push((await compile({ ...view, title: definition.name }, definition.name, OPTIONS)).trim());
      names.push(definition.name);
    } catch (error) {
      problems.push({ file: definition.file, message: `$defs.${definition.name}: ${(error as Error).message}` });
    }
  }
  const rows = names.map((name) => `  ${name}: ${name};`).join("\n");
  const schemas = `/** Every type by the name of its schema. */\nexport interface Schemas {\n${rows}\n}`;
  return `${[...blocks, schemas].join("\n\n")}\n`;
}

/**
 * The schema for the type generator. The types of the manifest describe the resolved manifest: every key with a default is present, and
 * durations and sizes are numbers (`tsType` in their schemas).
 */
function typeView(schema: JsonSchema, resolved: boolean): JsonSchema {
  for (const keyword of REFUSED) {
    if (keyword in schema) throw new Error(`"${keyword}" is not carried over to the types: write it another way`);
  }
  const tsType = referencedName(schema.$ref) ?? schema.tsType;
  if (tsType !== undefined) return { tsType, ...("description" in schema && { description: schema.description }) };
  const view = mapSubschemas(schema, (subschema) => typeView(subschema, resolved));
  for (const keyword of ["title", "default", "examples", "if", "then", "else", "not"]) delete view[keyword];
  for (const keyword of ["allOf", "anyOf", "oneOf"]) if (!hasShape(view[keyword])) delete view[keyword];
  // `x-` keys are the user's own; with an index signature for them the compiler would accept every misspelt property.
  delete view.patternProperties;
  if (resolved) view.required = [...new Set([...asList(schema.required), ...defaulted(schema)])];
  if (asList(view.required).length === 0) delete view.required;
  // An object without properties would become `{}`, a type that accepts any value but null.
  if (schema.type === "object" && !("properties" in schema)) view.additionalProperties ??= true;
  return view;
}

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** Properties that are always present after validation: with a default, or with one in both branches of a condition. */
function defaulted(schema: JsonSchema): string[] {
  const { then: first, else: second } = schema as { then?: JsonSchema; else?: JsonSchema };
  const inElse = second ? defaulted(second) : [];
  const inBoth = first ? defaulted(first).filter((key) => inElse.includes(key)) : [];
  const entries = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  return [
    ...entries.filter(([, property]) => isObject(property) && "default" in property).map(([key]) => key),
    ...inBoth,
  ];
}

/** False for combinations that only constrain (`oneOf: [{required: [a]}, {required: [b]}]`). */
function hasShape(combination: unknown): boolean {
  return asList(combination).some((part) =>
    Object.keys(part as JsonSchema).some((key) => !["required", "description", "minProperties"].includes(key)),
  );
}

const REFERENCE = {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is what users write
  description: "`${NAME}`, `${NAME:-default}` or `${file:PATH}`, which is filled in at the start.",
  type: "string",
  pattern: "\\$\\{[^}]",
};
const SCALARS = ["number", "integer", "boolean"];
/** Keywords that a text with a reference may violate until it is filled in. */
const NARROWING = ["enum", "const", "pattern", "format", "maxLength"];
/** Keywords about the place and not the value: they stay outside, where editors look for them. */
const ANNOTATIONS = ["title", "description", "default", "examples"];
/** Keywords that never apply to a reference: conditions and names of keys. */
const UNCHANGED = ["if", "not", "propertyNames"];

/**
 * The schema for editors, of the manifest as written, before every `${...}` is filled in.
 *
 * @param definitions by name, which refer to each other as `#/$defs/NAME`
 */
function editorSchema(definitions: Record<string, JsonSchema>): JsonSchema {
  const changed = Object.entries(definitions).map(([name, schema]) => [name, withReferences(schema)]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "service.yaml",
    description: "The manifest of a Penstock service.",
    $ref: "#/$defs/Manifest",
    $defs: Object.fromEntries(changed),
  };
}

/** The schema for editors of files of evals, which cannot contain references. */
const evalsSchema = (definitions: Record<string, JsonSchema>): JsonSchema => ({
  $schema: "https://json-schema.org/draft/2020-12/schema",
  title: "evals.yaml",
  description: "Cases for `penstock eval`.",
  $ref: "#/$defs/EvalFile",
  $defs: definitions,
});

/** A copy that accepts `${...}` wherever a single text may stand for the value. */
function withReferences(schema: JsonSchema): JsonSchema {
  const copy = mapSubschemas(schema, withReferences);
  for (const keyword of UNCHANGED) if (keyword in schema) copy[keyword] = schema[keyword];
  if (!takesText(schema)) return copy;
  const entries = Object.entries(copy);
  const outside = entries.filter(([key]) => ANNOTATIONS.includes(key));
  const inside = entries.filter(([key]) => !ANNOTATIONS.includes(key));
  return { ...Object.fromEntries(outside), anyOf: [Object.fromEntries(inside), REFERENCE] };
}

/** Whether a reference must be allowed because the schema itself would refuse its text. */
function takesText(schema: JsonSchema): boolean {
  const types = [schema.type ?? []].flat();
  if (!types.includes("string")) return types.some((type) => SCALARS.includes(String(type))) || isScalarChoice(schema);
  return NARROWING.some((keyword) => keyword in schema);
}

const isScalarChoice = ({ enum: values, const: value }: JsonSchema): boolean =>
  (Array.isArray(values) && !values.some(isObject)) || (value !== undefined && !isObject(value));

const HEAD = "Generated by npm run generate from schemas/. Do not edit.";

const VALIDATOR = `import type { ErrorObject } from "ajv";
import type { Schemas } from "./types.ts";

/** Checks a value. After false, errors has the first problems of every list and map until the next call. */
export interface Validator<T> {
  (data: unknown): data is T;
  errors?: ErrorObject[] | null;
}
`;

const IMPORTED_VALIDATOR = `import type { Schemas } from "./types.ts";
import type { Validator } from "./validators.js";
`;

function declarations(head: string, names: string): string {
  return `${head}\nexport declare const validators: { readonly [K in ${names}]: Validator<Schemas[K]> };\n`;
}

interface Generated {
  /** Texts by file name below `generated/`. */
  files: Map<string, string>;
  problems: SchemaProblem[];
}

export async function generate(root: string): Promise<Generated> {
  const { files, definitions, problems } = await readSources(root);
  let usable = compilable(files, definitions, problems);
  const failed: SchemaProblem[] = [];
  const types = await generateTypes(usable, failed);
  if (failed.length > 0) {
    // A definition without a type gets no validator either, so that both files have the same definitions.
    usable = usable.filter(({ name }) => !failed.some(({ message }) => message.startsWith(`$defs.${name}:`)));
    problems.push(...failed);
  }
  const served = servedDefinitions(usable);
  const others = usable.filter((definition) => !served.includes(definition));
  const names = served.map(({ name }) => JSON.stringify(name)).join(" | ");
  const validators = await generateValidators(root, files, { definitions: served });
  const rest = await generateValidators(root, files, { definitions: others, extended: "./validators.js" });
  const definitionsOf = (written: string) => namedDefinitions(usable.filter(({ group }) => group === written));
  return {
    problems,
    files: new Map([
      ["types.ts", `/* ${HEAD} */\n\n${types}`],
      ["validators.js", `/* ${HEAD} */\n${validators}`],
      ["validators.d.ts", `/* ${HEAD} */\n${declarations(VALIDATOR, names)}`],
      ["all-validators.js", `/* ${HEAD} */\n${rest}`],
      ["all-validators.d.ts", `/* ${HEAD} */\n${declarations(IMPORTED_VALIDATOR, "keyof Schemas")}`],
      ["defaults.ts", defaultsModule(usable)],
      ["option-names.ts", optionNamesModule(usable)],
      ["service.schema.json", `${JSON.stringify(editorSchema(definitionsOf("manifest")), null, 2)}\n`],
      ["evals.schema.json", `${JSON.stringify(evalsSchema(definitionsOf("evals")), null, 2)}\n`],
    ]),
  };
}

function namedDefinitions(definitions: SchemaDefinition[]): Record<string, JsonSchema> {
  const sorted = [...definitions].sort((a, b) => (a.name < b.name ? -1 : 1));
  return Object.fromEntries(sorted.map(({ name, schema }) => [name, withoutTypes(rewriteReferences(schema))]));
}

/** The module with the defaults of requests: validators do not fill them in, because an agent may have other defaults. */
function defaultsModule(definitions: SchemaDefinition[]): string {
  const entries = definitions
    .filter(({ group }) => group === "api")
    .map(({ name, schema }) => [name, collectDefaults(schema)] as const)
    .filter(([, found]) => Object.keys(found).length > 0)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const comment = "What properties of requests are when they are left out, by the name of the schema.";
  const text = JSON.stringify(Object.fromEntries(entries), null, 2);
  return `/* ${HEAD} */\n\n/** ${comment} */\nexport const defaults = ${text} as const;\n`;
}

/** Defaults by property, at any depth; the target of a `$ref` has an entry of its own. */
function collectDefaults({ properties = {} }: JsonSchema): JsonSchema {
  const found: JsonSchema = {};
  for (const [key, property] of Object.entries(properties as Record<string, JsonSchema>)) {
    if ("default" in property) found[key] = property.default;
    else if (Object.keys(collectDefaults(property)).length > 0) found[key] = collectDefaults(property);
  }
  return found;
}

/** The module with the names of options, for every body with `options`. */
function optionNamesModule(definitions: SchemaDefinition[]): string {
  const schemas = new Map(definitions.map(({ name, schema }) => [name, schema]));
  const entries = definitions
    .filter(
      ({ group, name, schema }) =>
        group === "api" && name.endsWith("Request") && propertiesOf(schema)?.options !== undefined,
    )
    .map(({ name, schema }) => [name, propertyNames(propertiesOf(schema)!.options!, schemas)] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const comment = "The keys that `options` of a request may have, at every depth, by the name of the body's schema.";
  const text = JSON.stringify(Object.fromEntries(entries), null, 2);
  const type =
    "/** True for what may have any keys, or none. */\nexport interface OptionNames {\n  readonly [name: string]: OptionNames | true;\n}";
  return `/* ${HEAD} */\n\n${type}\n\n/** ${comment} */\nexport const optionNames: Readonly<Record<string, OptionNames>> = ${text};\n`;
}

const propertiesOf = ({ properties }: JsonSchema) => properties as Record<string, JsonSchema> | undefined;

function propertyNames(schema: JsonSchema, schemas: ReadonlyMap<string, JsonSchema>): object | true {
  const target = schemas.get(referencedName(schema.$ref) ?? "") ?? schema;
  const properties = propertiesOf(target);
  if (properties === undefined || target.additionalProperties === true) return true;
  return Object.fromEntries(Object.entries(properties).map(([name, item]) => [name, propertyNames(item, schemas)]));
}

/** Removes `tsType`, which is only for the type generator. */
function withoutTypes(schema: JsonSchema): JsonSchema {
  return JSON.parse(JSON.stringify(schema, (key, value) => (key === "tsType" ? undefined : value)));
}
