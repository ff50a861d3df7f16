/** The model providers that the manifest names, made at boot, and the chains of models that agents ask for. */
import { fileURLToPath } from "node:url";
import type { EmbeddingModelV3, LanguageModelV3 } from "@ai-sdk/provider";
import { invalid, messageOf } from "../lib/errors.ts";
import type { Problem } from "../lib/problem.ts";
import { formatPath, hint } from "../manifest/issues.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { ModelMeter, NamedMeters } from "../observability/metrics/named.ts";
import type { Host, ModelProvider } from "../plugin/plugin.ts";
import type { Registry } from "../registry/registry.ts";
import { type ChainedModel, createModelChain, type ModelChain } from "./chain.ts";
import { type ModelFlaw, modelFlaw } from "./check.ts";
import { namedModels, splitName } from "./names.ts";
import { makeProvider, shapeProblems } from "./providers.ts";

export interface Models {
  /**
   * The chain of these `provider/model` names, in order.
   *
   * @throws ServiceError `invalid_input` for a name that is not known: possible only for names computed at run time,
   * since those in the manifest are checked at boot.
   */
  chain(names: readonly string[]): ModelChain;
  /** The embedding model of a `provider/model` name. Throws as `chain` does. */
  embedding(name: string): EmbeddingModelV3;
}

export interface ModelsOptions {
  /** The manifest's folder: where npm packages are looked for first. Default: the working directory. */
  folder?: string;
  /** The environment variable that a value of the manifest refers to, for messages about keys. */
  variableOf?(path: readonly (string | number)[]): string | undefined;
  /** By `provider/model`. */
  meters?: NamedMeters<ModelMeter>;
}

/** Tries after the first where a provider does not say. */
const RETRIES = 2;
const OWN_FOLDER = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Makes the providers that an agent or a memory names, and checks the models named. Providers that nothing names are
 * checked for shape only. Where an agent computes its model at run time any provider may be meant: those are made if
 * they can be.
 */
export async function createModels(
  manifest: Manifest,
  registry: Registry,
  host: Host,
  options: ModelsOptions = {},
): Promise<{ models: Models; problems: Problem[] }> {
  const folders = [options.folder ?? process.cwd(), OWN_FOLDER];
  const { names, dynamic } = namedModels(manifest);
  const named = new Set(names.map(({ name }) => splitName(name).provider));
  const providers = new Map<string, ModelProvider>();
  const problems: Problem[] = [];

  for (const [key, entry] of Object.entries(manifest.providers)) {
    if (!named.has(key) && !dynamic) {
      problems.push(...shapeProblems(key, entry, registry));
      continue;
    }
    const made = await makeProvider(key, entry, { registry, host, folders, variableOf: options.variableOf });
    if (made.provider !== null) providers.set(key, made.provider);
    else if (named.has(key)) problems.push(...made.problems);
    else {
      const shape = shapeProblems(key, entry, registry);
      problems.push(...shape);
      const reasons = made.problems.map(({ path, message }) => `${formatPath(path)}: ${message}`);
      if (shape.length === 0) host.logger.warn({ provider: key }, `provider not available: ${reasons.join("; ")}`);
    }
  }

  const models = new ModelTable(providers, host, options.meters ?? new NamedMeters(() => new ModelMeter()));
  const faulty = new Set<string>();
  for (const { name, kind, path } of names) {
    const { provider } = splitName(name);
    // An unknown provider is reported by the check of references, one that failed above; and each once.
    if (!providers.has(provider) || faulty.has(provider)) continue;
    const flaw = models.flaw(name, kind);
    if (flaw === null) continue;
    if (flaw.ofProvider) faulty.add(provider);
    problems.push({ path: flaw.ofProvider ? ["providers", provider] : path, message: flaw.message });
  }
  return { models, problems };
}

class ModelTable implements Models {
  readonly #providers: ReadonlyMap<string, ModelProvider>;
  readonly #host: Host;
  readonly #meters: NamedMeters<ModelMeter>;

  constructor(providers: ReadonlyMap<string, ModelProvider>, host: Host, meters: NamedMeters<ModelMeter>) {
    this.#providers = providers;
    this.#host = host;
    this.#meters = meters;
  }

  chain(names: readonly string[]): ModelChain {
    if (names.length === 0) throw invalid("model: at least one provider/model is needed");
    const chained = names.map((name): ChainedModel => {
      const provider = this.#provider(name);
      const retries = provider.retries ?? RETRIES;
      return { id: name, model: this.#model(name), retries, meter: this.#meters.of(name) };
    });
    return createModelChain(chained, { logger: this.#host.logger });
  }

  embedding(name: string): EmbeddingModelV3 {
    const provider = this.#provider(name);
    if (provider.embeddingModel === undefined) throw invalid(`${name}: the provider has no embedding models`);
    return this.#create(name, () => provider.embeddingModel!(splitName(name).model));
  }

  /** What is wrong with a model whose provider is known; null when nothing is. */
  flaw(name: string, kind: "language" | "embedding"): ModelFlaw | null {
    try {
      return modelFlaw(kind === "language" ? this.#model(name) : this.embedding(name));
    } catch (error) {
      return { message: messageOf(error), ofProvider: false };
    }
  }

  #model(name: string): LanguageModelV3 {
    return this.#create(name, () => this.#provider(name).languageModel(splitName(name).model));
  }

  #create<T>(name: string, create: () => T): T {
    try {
      return create();
    } catch (error) {
      throw invalid(`model ${JSON.stringify(name)}: ${messageOf(error)}`);
    }
  }

  #provider(name: string): ModelProvider {
    const { provider: key } = splitName(name);
    const provider = this.#providers.get(key);
    if (provider !== undefined) return provider;
    throw invalid(`model ${JSON.stringify(name)}: unknown provider "${key}"${hint(key, [...this.#providers.keys()])}`);
  }
}
