/** What an agent lets a request ask for: the largest values of its options, and the provider options that it takes. */
import type { GenerateOptions } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import type { AgentManifest } from "../../manifest/manifest.ts";
import { type AllowedOptions, allowedOptions, checkInputOptions, checkProviderOptions } from "./allowed-options.ts";
import type { RunSettings } from "./options.ts";

/** The options that may be `{default, max}` in the manifest. */
const BOUNDED_OPTIONS = [
  "maxSteps",
  "temperature",
  "maxOutputTokens",
  "topP",
  "frequencyPenalty",
  "presencePenalty",
  "seed",
] as const;
type BoundedOption = (typeof BOUNDED_OPTIONS)[number];

export interface RequestBounds {
  /** The options with a bound, and the largest value of each. */
  readonly largest: readonly (readonly [option: BoundedOption, max: number])[];
  readonly providerOptions: AllowedOptions;
}

/**
 * The agent's own options as values, and its bounds.
 *
 * @param base what stands in where an option has a bound and no default
 */
export function agentOptions(
  agent: Pick<AgentManifest, "options" | "maxSteps" | "allowProviderOptions">,
  base: RunSettings,
): { options: GenerateOptions; bounds: RequestBounds } {
  const declared = { ...agent.options, maxSteps: agent.maxSteps };
  const options: Record<string, unknown> = { ...declared };
  const largest: [BoundedOption, number][] = [];
  for (const option of BOUNDED_OPTIONS) {
    const value = declared[option];
    if (typeof value !== "object" || value === null) continue;
    const { max, default: own } = value;
    const usual = base[option];
    largest.push([option, max]);
    options[option] = own !== undefined || usual === undefined ? own : Math.min(usual, max);
  }
  return { options, bounds: { largest, providerOptions: allowedOptions(agent.allowProviderOptions) } };
}

/** @throws ServiceError `invalid_input` naming the option and its limit */
export function checkBounds(bounds: RequestBounds, options: GenerateOptions): void {
  for (const [option, max] of bounds.largest) {
    const value = options[option];
    if (value === undefined) continue;
    // What is not sent is up to the provider, which knows no such limit.
    if (value === null) throw invalid(`options.${option} must not be null: this agent limits it to ${max}`);
    if (value > max) throw invalid(`options.${option} must be <= ${max}, which is the limit of this agent`);
  }
  if (options.providerOptions !== undefined)
    checkProviderOptions(bounds.providerOptions, options.providerOptions, "options.providerOptions");
}

/** The same for options inside the input. @param input as `buildPrompt` has checked it */
export function checkInputBounds(bounds: RequestBounds, input: unknown, field = "input"): void {
  checkInputOptions(bounds.providerOptions, input, field);
}

const EFFORT = "reasoningEffort";

/**
 * How much a model shall think, for the providers whose option the agent lets requests set.
 *
 * @throws ServiceError `invalid_input` when there is none
 */
export function reasoningOptions(
  { providerOptions }: RequestBounds,
  effort: string,
  field: string,
): Record<string, Record<string, string>> {
  const providers = [...providerOptions].filter(([, level]) => level === null || level.get(EFFORT) === null);
  if (providers.length === 0) throw invalid(`${field} is not allowed: this agent takes no effort from requests`);
  return Object.fromEntries(providers.map(([provider]) => [provider, { [EFFORT]: effort }]));
}
