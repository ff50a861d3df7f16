/** Creates the model providers of the manifest at boot, and then the model chains of agents. */
import { fileURLToPath } from "node:url";
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { Logger } from "pino";
import { caught, invalid, messageOf, type Problem } from "../lib/errors.ts";
import { RecentMap } from "../lib/recent-map.ts";
import { isThenable } from "../lib/thenable.ts";
import { formatPath, hint, type Manifest, type ProviderManifest } from "../manifest/manifest.ts";
import { type CircuitState, ModelMeter, NamedMeters } from "../observability/metrics/meters.ts";
import { type ModelServer, modelSpan, type ServedModel, type Span } from "../observability/span.ts";
import { AllowedAddresses } from "../outbound/allowed-addresses.ts";
import type { Host, ModelProvider } from "../plugin/plugin.ts";
import type { Registry } from "../registry/registry.ts";
import type { CassetteIntercept } from "./cassettes/intercept.ts";
import {
  ChainedAnswer,
  type ChainedModel,
  type ChainSettings,
  type KnownModel,
  type ModelCallOptions,
  type ModelStream,
} from "./chained-answer.ts";
import { type Circuit, createCircuit } from "./circuit.ts";
import { knownContextWindow } from "./context-windows.ts";
import type { Downloader } from "./files/download.ts";
import { createPromptFiles, type PromptFiles } from "./files/prompt-files.ts";
import { namedModels, splitModelName } from "./names.ts";
import type { StreamingModel } from "./part-source.ts";
import { configurationProblems, keyPlace, makeProvider, serverOf } from "./providers.ts";
import { type LearnedModel, learnedNothing } from "./refusals.ts";
import { modelSettings, modelWarnings, WarningLog } from "./settings-problems.ts";
import { LearnedModes, withStructuredOutput } from "./structured-output.ts";
import { ThinkHabit } from "./think-tags.ts";
import { type AnyLanguageModel, toEmbeddingModel, toStreamingModel, VERSIONS } from "./versions/versions.ts";

// Finds problems of a model at boot, before its first call.

/** AI SDK errors whose message names the missing key or setting and how to set it. */
const MISSING_SETTING_ERRORS: ReadonlySet<unknown> = new Set(["AI_LoadAPIKeyError", "AI_LoadSettingError"]);

interface ModelFlaw {
  message: string;
  /** Whether the whole provider is at fault, not only this model. */
  ofProvider: boolean;
}

/**
 * The problem of a model, or null: a version of the model interface that is not supported, or a key that is missing in the
 * environment. AI SDK models read their key when they build the headers of a call, so building the headers finds a missing key.
 *
 * @param use the package or plugin that it comes from
 */
function findModelFlaw(model: unknown, use: string): ModelFlaw | null {
  const { specificationVersion, config } = (model ?? {}) as { specificationVersion?: unknown; config?: unknown };
  if (!VERSIONS.includes(specificationVersion)) {
    const message = `the models of "${use}" speak version ${String(specificationVersion)} of the AI SDK's model interface, and ${VERSIONS.join(", ")} are understood: install the release of it for AI SDK 7`;
    return { message, ofProvider: true };
  }
  const headers = (config as { headers?: unknown } | undefined)?.headers;
  // An asynchronous function may fetch a token over the network, which must not happen at boot.
  if (typeof headers !== "function" || headers.constructor.name !== "Function") return null;
  try {
    const result: unknown = headers.call(config);
    if (isThenable(result)) Promise.resolve(result).catch(() => undefined);
  } catch (thrown) {
    const error = caught(thrown);
    if (error instanceof Error && MISSING_SETTING_ERRORS.has(error.name))
      return { message: messageOf(error), ofProvider: true };
  }
  return null;
}

// The circuit breakers of all models of a service, by `provider/model`.

/** Requests may compute names of models: only those that were used last are kept. */
const MAX_CIRCUITS = 1024;

const MESSAGES: Record<CircuitState, string> = {
  open: "model circuit open: it failed too often, and is not called until its next trial",
  trial: "model circuit on trial: one call decides",
  closed: "model circuit closed: it answers again",
};

export function createCircuits(logger: Pick<Logger, "info" | "warn">, meters: NamedMeters<ModelMeter>) {
  const circuits = new RecentMap<Circuit>(MAX_CIRCUITS);

  function of(model: string): Circuit {
    const circuit = circuits.get(model) ?? create(model);
    circuits.set(model, circuit);
    return circuit;
  }

  /** Resets the meter, which may still show the state of a circuit from before a reload. */
  function create(model: string): Circuit {
    meters.of(model).circuit = "closed";
    return createCircuit((state) => changed(model, state));
  }

  function changed(model: string, state: CircuitState): void {
    meters.of(model).circuit = state;
    logger[state === "open" ? "warn" : "info"]({ model, circuit: state }, MESSAGES[state]);
  }

  return { of };
}

export interface Models {
  /**
   * The chain of these `provider/model` names, in order.
   *
   * @throws ServiceError `invalid_input` for an unknown name, which must have been computed at run time: names in the
   * manifest are checked at boot
   */
  chain(names: readonly string[]): ModelChain;
  /** The embedding model of a `provider/model` name. Throws like `chain`. */
  embedding(name: string): EmbeddingModelV3;
}

interface ModelsOptions {
  /** The manifest's folder, where npm packages are searched first. Default: the working directory. */
  folder?: string;
  /** The environment variable that a value of the manifest refers to, for messages about missing keys. */
  variableOf?(path: readonly (string | number)[]): string | undefined;
  /** The text of a value as written in the manifest, when it refers to a value outside of it. */
  referenceAt?(path: readonly (string | number)[]): string | undefined;
  /** Metrics by `provider/model`. */
  meters?: NamedMeters<ModelMeter>;
  /** Records or replays what providers answer. */
  cassettes?: CassetteIntercept | undefined;
  /** `all`: creates even unused providers, as is necessary when an agent computes its model. */
  providers?: "all" | undefined;
  /** Agents with mistakes may be missing: nothing is said of models that none of the others uses. */
  isPartial?: boolean;
}

/** Number of tries after the first, for providers that set none. */
const DEFAULT_RETRIES = 2;
/** Bound of the cache, because names may be computed from requests. */
const MAX_LEARNED = 1_000;
const PACKAGE_FOLDER = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Creates the providers that an agent or a memory uses, and checks the models that they name. Of unused providers only the
 * configuration is checked. When an agent computes its model at run time, any provider may be used: then all are created, and
 * for those that cannot be created there is only a log line.
 */
export async function createModels(
  manifest: Manifest,
  registry: Registry,
  host: Host,
  options: ModelsOptions = {},
): Promise<{ models: Models; problems: Problem[] }> {
  const folders = [options.folder ?? process.cwd(), PACKAGE_FOLDER];
  const { names, dynamic } = namedModels(manifest);
  const any = dynamic || options.providers === "all";
  const named = new Set(names.map(({ name }) => splitModelName(name).provider));
  const providers = new Map<string, ConfiguredProvider>();
  const problems: Problem[] = [];

  for (const [key, entry] of Object.entries(manifest.providers)) {
    if (!named.has(key) && !any) {
      problems.push(...configurationProblems(key, entry, registry));
      continue;
    }
    const { variableOf, referenceAt, cassettes } = options;
    const created = await makeProvider(key, entry, { registry, host, folders, variableOf, referenceAt, cassettes });
    if (created.provider !== null)
      providers.set(key, {
        ...created,
        entry,
        keyPlace: keyPlace(key, entry, variableOf),
        server: serverOf(key, entry),
        modes: new LearnedModes(),
      });
    else if (named.has(key)) problems.push(...created.problems);
    else {
      const problemsOfConfiguration = configurationProblems(key, entry, registry);
      problems.push(...problemsOfConfiguration);
      const reasons = created.problems.map(({ path, message }) => `${formatPath(path)}: ${message}`);
      if (problemsOfConfiguration.length === 0)
        host.logger.warn({ provider: key }, `provider not available: ${reasons.join("; ")}`);
    }
  }

  problems.push(...modelWarnings(manifest, options.isPartial));

  const models = createModelTable(
    providers,
    host,
    options.meters ?? new NamedMeters(() => new ModelMeter()),
    promptFiles(manifest.server.downloads, host),
  );
  const faulty = new Set<string>();
  for (const { name, kind, path } of names) {
    const { provider } = splitModelName(name);
    // An unknown provider is reported with the references of the manifest, and one that failed has been reported above.
    if (!providers.has(provider) || faulty.has(provider)) continue;
    const flaw = models.flaw(name, kind);
    if (flaw === null) continue;
    if (flaw.ofProvider) faulty.add(provider);
    problems.push({ path: flaw.ofProvider ? ["providers", provider] : path, message: flaw.message });
  }
  return { models, problems };
}

interface ConfiguredProvider {
  readonly provider: ModelProvider;
  readonly entry: ProviderManifest;
  /** Where its key is configured, for the log. */
  readonly keyPlace: string;
  readonly server: ModelServer;
  /** How its models accept requests for JSON, as learned from earlier calls. */
  readonly modes: LearnedModes;
}

/** Loads its downloader with the first file only. */
function promptFiles({ allowPrivate, ...limits }: Manifest["server"]["downloads"], host: Host): PromptFiles {
  const allowed = new AllowedAddresses(allowPrivate);
  let downloader: Promise<Downloader> | undefined;
  const open = async () => {
    const { createDownloader } = await import("./files/download.ts");
    const opened = createDownloader(allowed);
    host.onClose(opened.close);
    return opened;
  };
  return createPromptFiles(
    () => {
      downloader ??= open();
      return downloader;
    },
    limits,
    allowed,
  );
}

function createModelTable(
  providers: ReadonlyMap<string, ConfiguredProvider>,
  host: Host,
  meters: NamedMeters<ModelMeter>,
  files: PromptFiles,
) {
  const learned = new RecentMap<LearnedModel>(MAX_LEARNED);
  const circuits = createCircuits(host.logger, meters);
  const warnings = new WarningLog(host.logger);

  function chain(names: readonly string[]): ModelChain {
    if (names.length === 0) throw invalid("model: at least one provider/model is needed");
    const chained = names.map((name): ChainedModel => {
      const { provider, entry, keyPlace, server } = configuredOf(name);
      const { model } = splitModelName(name);
      const { prices, contextWindow, extractReasoning } = modelSettings(entry, model);
      const retries = entry.retries ?? provider.retries ?? DEFAULT_RETRIES;
      const meter = meters.of(name);
      // Starts at 0, so that metrics show the first call as an increase.
      if (prices !== undefined) meter.cost ??= 0;
      return {
        id: name,
        model: askedForJson(name),
        retries,
        timeouts: entry.timeouts,
        contextWindow: contextWindow ?? knownContextWindow(model),
        learned: learnedOf(name),
        circuit: circuits.of(name),
        meter,
        prices,
        keyPlace,
        server,
        ...(extractReasoning && { think: new ThinkHabit() }),
      };
    });
    return createModelChain(chained, { logger: host.logger, warned: warnings.add, files });
  }

  function embedding(name: string): EmbeddingModelV3 {
    return toEmbeddingModel(embeddingModelOf(name));
  }

  function embeddingModelOf(name: string): EmbeddingModelV3 {
    const { provider, entry } = configuredOf(name);
    if (provider.embeddingModel === undefined) throw invalid(`${name}: the provider has no embedding models`);
    const { model } = splitModelName(name);
    return create(name, () => provider.embeddingModel!(model, modelSettings(entry, model)));
  }

  /** The problem of a model whose provider exists, or null. */
  function flaw(name: string, kind: "language" | "embedding"): ModelFlaw | null {
    try {
      const { use } = configuredOf(name).entry;
      return findModelFlaw(kind === "language" ? languageModelOf(name) : embeddingModelOf(name), use);
    } catch (error) {
      return { message: messageOf(error), ofProvider: false };
    }
  }

  /** What the answers of a model have shown. */
  function learnedOf(name: string): LearnedModel {
    const known = learned.get(name) ?? learnedNothing();
    learned.set(name, known);
    return known;
  }

  function languageModelOf(name: string): AnyLanguageModel {
    const { provider, entry } = configuredOf(name);
    const { model } = splitModelName(name);
    return create(name, () => provider.languageModel(model, modelSettings(entry, model)));
  }

  function askedForJson(name: string): StreamingModel {
    const { entry, modes } = configuredOf(name);
    const model = toStreamingModel(languageModelOf(name));
    const { structuredOutput: setting } = modelSettings(entry, splitModelName(name).model);
    return withStructuredOutput(model, { name, setting, learned: modes, logger: host.logger });
  }

  function create<T>(name: string, create: () => T): T {
    try {
      return create();
    } catch (error) {
      throw invalid(`model ${JSON.stringify(name)}: ${messageOf(error)}`);
    }
  }

  function configuredOf(name: string): ConfiguredProvider {
    const { provider: key } = splitModelName(name);
    const provider = providers.get(key);
    if (provider !== undefined) return provider;
    throw invalid(`model ${JSON.stringify(name)}: unknown provider "${key}"${hint(key, [...providers.keys()])}`);
  }

  return { chain, embedding, flaw };
}

export interface ModelChain {
  /** `provider/model` of the first entry. */
  readonly id: string;
  /** The first entry, for traces. */
  readonly served: ServedModel;
  /** Most tokens of prompt and answer together for the first model, if known. */
  readonly contextWindow: number | undefined;
  /** What is known of the first model. */
  readonly learned: LearnedModel;
  /** The name of the spans of its calls. */
  readonly spanName: string;
  /**
   * Calls the model. Resolves when it has accepted the call: response headers may be sent. A stream that fails before its
   * first visible part is still retried, inside `next`.
   *
   * @param span of the call: retries and fallbacks become its events
   * @throws ServiceError `provider_failed` when no model of the chain answers; the signal's reason once it aborts
   */
  stream(options: ModelCallOptions, span?: Span | null): Promise<ModelStream>;
}

/** @param models at least one */
export function createModelChain(models: readonly ChainedModel[], settings: ChainSettings): ModelChain {
  // Models that have answered in batches: these handle the abort signal themselves, so this file need not listen to it.
  const batched = new WeakSet<StreamingModel>();
  const known = models.map((given): KnownModel => {
    const { provider, model } = splitModelName(given.id);
    const { server = { provider }, learned = learnedNothing() } = given;
    return { ...given, learned, served: { id: given.id, model, server } };
  });
  const { id, contextWindow, learned, served } = known[0]!;
  return {
    id,
    served,
    contextWindow,
    learned,
    spanName: modelSpan(served.model),
    stream: (options, span = null) => new ChainedAnswer(known, settings, options, batched, span).open(),
  };
}
