/** Creates the instance of a plugin: checks its configuration, calls `create`, checks the result. */
import { messageOf, type Path, type Problem } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { createSchemaCompiler, describeProblems } from "../lib/json-schema.ts";
import { hint, parsePath } from "../manifest/manifest.ts";
import type {
  AuthPlugin,
  EmbeddingPlugin,
  Host,
  JsonSchema,
  ProviderPlugin,
  StorePlugin,
  VectorsPlugin,
} from "../plugin/plugin.ts";
import { fieldProblems, kindRow } from "./kinds.ts";
import type { PluginPhase } from "./problem.ts";

type Configured = { config: Record<string, unknown>; problem: null } | { config: null; problem: string };

const CONFIGS = createSchemaCompiler({ defaults: true });
/** By the schema of the plugin, which is the same in each service of the process and after each reload. */
const compiled = new WeakMap<JsonSchema, ReturnType<typeof CONFIGS.compile>>();
const NO_SCHEMA = { type: "object" };

function compileConfig(own: JsonSchema) {
  const closed = { ...own, patternProperties: { "^x-": true, ...(own.patternProperties as object) } };
  // One that lists its keys and says nothing of others has no others, but the notes of the user.
  const validate = CONFIGS.compile(
    own.properties === undefined || "additionalProperties" in own ? own : { unevaluatedProperties: false, ...closed },
  );
  compiled.set(own, validate);
  return validate;
}

/**
 * Checks a configuration against the plugin's schema and fills in the schema's defaults. The given value is not changed.
 *
 * A plugin without a schema accepts any keys.
 *
 * @param config the keys beside `use`, or `with`; `undefined` means `{}`
 */
export function configure({ config: own = NO_SCHEMA }: { config?: JsonSchema }, config: unknown): Configured {
  const filled: Record<string, unknown> = structuredClone(config ?? {}) as Record<string, unknown>;
  try {
    const validate = compiled.get(own) ?? compileConfig(own);
    if (validate(filled)) return { config: filled, problem: null };
    return { config: null, problem: describeProblems(validate.errors) };
  } catch (error) {
    return { config: null, problem: `the plugin's config is not a JSON Schema: ${messageOf(error)}` };
  }
}

/**
 * Splits the message of `configure` into problems, each with its own place in the manifest.
 *
 * @param path of the configuration in the manifest
 * @param text `timeouts.idle must be string; retries must be integer`
 * @param schema of the configuration: a key that it does not have may be misspelt
 */
export function configProblems(path: Path, text: string, schema: JsonSchema = {}): Problem[] {
  const known = Object.keys((schema.properties ?? {}) as object);
  return text.split("; ").map((problem) => {
    const [, field, message] = /^(\S+) ((?:must|is) .*)$/s.exec(problem) ?? [];
    const below = field === undefined || field === "body" ? [] : (parsePath(field) ?? []);
    const own = below.length > 0 && message !== undefined ? message : problem;
    const isUnknown = own === "is not a known key" && below.length === 1 && known.length > 0;
    return { path: [...path, ...below], message: isUnknown ? `unknown key${hint(String(below[0]), known)}` : own };
  });
}

type Factory = AuthPlugin | ProviderPlugin | EmbeddingPlugin | VectorsPlugin | StorePlugin;

/** The instance of a plugin could not be created; `message` is for people. */
export class CreateError extends Error {
  override readonly name = "CreateError";
  readonly phase: PluginPhase;

  constructor(phase: PluginPhase, message: string, cause?: unknown) {
    super(message, { cause });
    this.phase = phase;
  }
}

/**
 * Configures a plugin and creates its instance.
 *
 * @throws CreateError with the phase `config` or `create`
 */
export async function createInstance<P extends Factory>(
  plugin: P,
  config: unknown,
  host: Host,
): Promise<Awaited<ReturnType<P["create"]>>> {
  const configured = configure(plugin, config);
  if (configured.config === null) throw new CreateError("config", configured.problem);
  let instance: unknown;
  try {
    instance = await plugin.create(configured.config, host);
  } catch (error) {
    throw new CreateError("create", `create failed: ${messageOf(error)}`, error);
  }
  // A provider of the AI SDK is a function with methods.
  const problems =
    isObject(instance) || typeof instance === "function"
      ? fieldProblems(instance as object, kindRow(plugin.kind).created ?? [])
      : ["is not an object"];
  if (problems.length > 0)
    throw new CreateError("create", `what create returns is not of kind ${plugin.kind}: ${problems.join("; ")}`);
  return instance as Awaited<ReturnType<P["create"]>>;
}
