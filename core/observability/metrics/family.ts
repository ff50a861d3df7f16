/** Metrics in the terms of Prometheus: families of samples with labels. */
import { BOUNDS, type Durations } from "./durations.ts";
import type { Tally } from "./tally.ts";

type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels: Labels;
  readonly value: number;
  /** Appended to the name of the family. */
  readonly suffix?: "_bucket" | "_sum" | "_count";
}

export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** Called with every scrape. */
  samples(): readonly Sample[];
}

const ENDLESS = "+Inf";

export function histogramSamples(labels: Labels, durations: Durations): Sample[] {
  const { cumulative } = durations;
  const buckets = cumulative.map((value, place): Sample => {
    const bound = BOUNDS[place];
    return { labels: { ...labels, le: bound === undefined ? ENDLESS : String(bound) }, value, suffix: "_bucket" };
  });
  const count = cumulative.at(-1)!;
  return [...buckets, { labels, value: durations.sum, suffix: "_sum" }, { labels, value: count, suffix: "_count" }];
}

/** One sample for each outcome, even for those that have not occurred: the rate of a series needs its start at 0. */
export function tallySamples<K extends string>(labels: Labels, tally: Tally<K>, label = "outcome"): Sample[] {
  return tally.outcomes.map((outcome) => ({
    labels: { ...labels, [label]: outcome.replaceAll(" ", "_") },
    value: tally.of(outcome),
  }));
}
