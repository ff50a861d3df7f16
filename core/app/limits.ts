/** The limits that the manifest sets, how much of each is in use, and how often each has refused something. */
import type { LimitState, ManifestValue } from "../../generated/types.ts";
import { parsePath } from "../manifest/issues.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { LimitMeters } from "../observability/metrics/limit-meters.ts";

/** Patterns of paths: limits of the whole service first, then those of its parts. */
const LIMITS = [
  /^server\.limits\./,
  /^server\.downloads\.(max|timeout)$/,
  /^(history|observability)\.retention$/,
  /^observability\.size$/,
  /^logs\.buffer$/,
  // An id that is not a plain name is written in brackets.
  /^providers[.[].+\.(retries|queue|connections|timeouts\.[^.]+)$/,
  /^agents[.[].+\.(maxSteps(\.max)?|toolOutput)$/,
  /^memory[.[].+\.contextTokens$/,
  /^tools[.[].+\.(timeout|expires)$/,
  /^workflows[.[].+\.recoveries$/,
];

/** Their values are numbers, so one that comes from the environment is not a secret. */
export function limitStates(manifest: Manifest, values: readonly ManifestValue[], meters: LimitMeters): LimitState[] {
  return LIMITS.flatMap((pattern) => values.filter(({ path }) => pattern.test(path))).flatMap((entry) => {
    const { path, source, origin, description, unit } = entry;
    const value = (parsePath(path) ?? []).reduce(memberOf, manifest);
    if (typeof value !== "number") return [];
    const used = meters.used(path);
    const refused = meters.refused(path);
    return [
      {
        path,
        value,
        source,
        origin,
        ...(description !== undefined && { description }),
        ...(unit !== undefined && { unit }),
        ...(used !== undefined && { used }),
        ...(refused !== undefined && { refused }),
      },
    ];
  });
}

const memberOf = (node: unknown, key: string | number): unknown => (node as Record<string | number, unknown>)?.[key];
