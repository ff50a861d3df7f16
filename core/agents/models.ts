/** The model providers that the manifest names, made at boot, and the chains of models that agents ask for. */
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { ModelChain } from "./model-chain.ts";

export interface ModelProblem {
  /** Where in the manifest: `["providers", "openai", "apiKey"]`. */
  path: readonly (string | number)[];
  message: string;
}

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
