/** `generated/*validators.js`: Ajv's standalone code of the definitions, bundled to ESM files without `require`. */
import { Ajv2020, type Options } from "ajv/dist/2020.js";
import standalone from "ajv/dist/standalone/index.js";
import formats from "ajv-formats";
import { build, type Plugin } from "esbuild";
import { boundErrors } from "../lib/bounded-errors.ts";
import { isWritten, type SchemaDefinition, type SchemaFile, type SchemaProblem } from "./sources.ts";

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
export function compilable(
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
export function servedDefinitions(definitions: readonly SchemaDefinition[]): SchemaDefinition[] {
  return definitions.filter(({ name }) => /^(Manifest|EvalFile|ContentResult)$|(Request|Query)$/.test(name));
}

/** The content of a module's `validators`. All `definitions` must compile. */
interface ValidatorModule {
  definitions: readonly SchemaDefinition[];
  /** Another module whose `validators` it exports too. */
  extended?: string;
}

/** The text of the module, without the head comment. */
export async function generateValidators(
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
