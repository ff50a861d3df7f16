/** Writes the families as text in the format of Prometheus, with prom-client, which has those of the process. */
import { performance } from "node:perf_hooks";
import { collectDefaultMetrics, type Metric, Registry } from "prom-client";
import { VERSION } from "../../lib/version.ts";
import { BOUNDS, type Durations } from "./durations.ts";
import { CIRCUIT_STATES, type Meters, OTHER, type RequestMeter, type Tally } from "./meters.ts";

// Metrics in the terms of Prometheus: families of samples with labels.

type Labels = Readonly<Record<string, string>>;

interface Sample {
  readonly labels: Labels;
  readonly value: number;
  /** Appended to the name of the family. */
  readonly suffix?: "_bucket" | "_sum" | "_count";
}

interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** Called with every scrape. */
  samples(): readonly Sample[];
}

const familyOf =
  (type: Family["type"]) =>
  (name: string, help: string, samples: Family["samples"]): Family => ({ name, help, type, samples });
const counter = familyOf("counter");
const gauge = familyOf("gauge");
const histogram = familyOf("histogram");

/** The samples of a family that is one number. */
const one = (value: number): Sample[] => [{ labels: {}, value }];

const ENDLESS = "+Inf";

function histogramSamples(labels: Labels, durations: Durations): Sample[] {
  const { cumulative } = durations;
  const buckets = cumulative.map((value, place): Sample => {
    const bound = BOUNDS[place];
    return { labels: { ...labels, le: bound === undefined ? ENDLESS : String(bound) }, value, suffix: "_bucket" };
  });
  const count = cumulative.at(-1)!;
  return [...buckets, { labels, value: durations.sum, suffix: "_sum" }, { labels, value: count, suffix: "_count" }];
}

/** One sample for each outcome, even for those that have not occurred: the rate of a series needs its start at 0. */
function tallySamples<K extends string>(labels: Labels, tally: Tally<K>, label = "outcome"): Sample[] {
  return tally.outcomes.map((outcome) => ({
    labels: { ...labels, [label]: outcome.replaceAll(" ", "_") },
    value: tally.of(outcome),
  }));
}

/** Statuses that are exposed even with a count of 0; the others only once they have occurred. */
const USUAL: ReadonlySet<string> = new Set(["2xx", "4xx", "5xx"]);
const NONE: ReadonlySet<string> = new Set();

/** Makes the families of `/metrics` from the counters. The names are part of the interface: docs/observability.md, "Metrics". */
export function collectFamilies(meters: Meters): Family[] {
  return [...requests(meters), ...models(meters), ...work(meters), ...store(meters), ...readings(meters)];
}

const statusesOf = (meter: RequestMeter, always: ReadonlySet<string>) =>
  tallySamples(labelsOf(meter), meter.statuses, "status").filter(
    ({ labels, value }) => value > 0 || always.has(labels.status!),
  );

const labelsOf = ({ operation, route, method }: RequestMeter) => ({ operation, route, method });

function requests(meters: Meters): Family[] {
  return [
    counter(
      "penstock_http_requests_total",
      "Requests that were answered, by operation and class of status; aborted: the client left before.",
      () => [
        ...meters.routes.flatMap((meter) => statusesOf(meter, USUAL)),
        ...meters.others.flatMap((meter) => statusesOf(meter, NONE)),
      ],
    ),
    histogram(
      "penstock_http_request_duration_seconds",
      "From the head of a request to the end of its answer, by operation, as far as it was asked for.",
      () =>
        meters.routes
          .filter(({ durations }) => durations.count > 0)
          .flatMap((meter) => histogramSamples(labelsOf(meter), meter.durations)),
    ),
  ];
}

function models({ models }: Meters): Family[] {
  return [
    counter("penstock_model_calls_total", "Calls of models by outcome, every try of its own.", () =>
      models.entries.flatMap(([model, { calls }]) => tallySamples({ model }, calls)),
    ),
    histogram(
      "penstock_model_call_duration_seconds",
      "From the call of a model to the end of its answer, of calls that ended well.",
      () => models.entries.flatMap(([model, { durations }]) => histogramSamples({ model }, durations)),
    ),
    gauge(
      "penstock_model_circuit_state",
      "Whether a model is called: 0 closed (it is), 1 one trial call is under way, 2 open (it failed too often).",
      () =>
        models.entries
          .filter(([model]) => model !== OTHER)
          .map(([model, { circuit }]) => ({ labels: { model }, value: CIRCUIT_STATES.indexOf(circuit) })),
    ),
    counter("penstock_model_tokens_total", "Tokens that models say they read and wrote.", () =>
      models.entries.flatMap(([model, { inputTokens, outputTokens }]): Sample[] => [
        { labels: { model, direction: "input" }, value: inputTokens },
        { labels: { model, direction: "output" }, value: outputTokens },
      ]),
    ),
    counter("penstock_model_cost_usd_total", "What the tokens cost, in US dollars, of models with prices.", () =>
      models.entries.flatMap(([model, { cost }]): Sample[] =>
        cost === undefined ? [] : [{ labels: { model }, value: cost }],
      ),
    ),
  ];
}

function work({ agents, tools, workflows }: Meters): Family[] {
  return [
    counter(
      "penstock_agent_runs_total",
      "Runs of agents by outcome, those that other agents and workflows asked for included.",
      () => agents.entries.flatMap(([agent, tally]) => tallySamples({ agent }, tally)),
    ),
    counter("penstock_tool_calls_total", "Calls of tools by outcome.", () =>
      tools.entries.flatMap(([tool, { calls }]) => tallySamples({ tool }, calls)),
    ),
    counter(
      "penstock_workflow_executions_total",
      "Executions of workflows that came to rest in this process, by how.",
      () => workflows.entries.flatMap(([workflow, { executions }]) => tallySamples({ workflow }, executions, "status")),
    ),
    gauge("penstock_workflow_executions_running", "Executions of workflows that run in this process.", () =>
      workflows.entries.map(([workflow, { running }]) => ({ labels: { workflow }, value: running })),
    ),
    counter("penstock_workflow_steps_total", "Steps of workflows by outcome; a step is named by its path.", () =>
      workflows.entries.flatMap(([workflow, { steps }]) =>
        steps.entries.flatMap(([step, tally]) => tallySamples({ workflow, step }, tally)),
      ),
    ),
  ];
}

function store({ commits, commitDurations }: Meters): Family[] {
  return [
    counter(
      "penstock_store_commits_total",
      "Commits by outcome; a conflict is one that another writer was faster with.",
      () => tallySamples({}, commits),
    ),
    histogram(
      "penstock_store_commit_duration_seconds",
      "From a commit to its being on disk, of commits that went well.",
      () => histogramSamples({}, commitDurations),
    ),
  ];
}

const readings = (meters: Meters): Family[] =>
  meters.readings.map(({ name, help, type, read }) => ({
    name: `penstock_${name}`,
    help,
    type,
    samples: () => one(read()),
  }));

/** Interval of samples of the event loop's lag, each of which costs some microseconds. */
const SAMPLE_INTERVAL_MS = 20;

/** Gauges of prom-client that are named like counters: promtool objects, and each has a family by type (`nodejs_active_handles`). */
const MISNAMED = ["nodejs_active_handles_total", "nodejs_active_requests_total", "nodejs_active_resources_total"];

/** The metrics of the process, whose names dashboards for Node.js expect. They begin with the first scrape, once for all services. */
const ofProcess: { registry?: Registry } = {};

/** Returns a function that makes the text. */
export function createExposition(meters: Meters): () => Promise<string> {
  ofProcess.registry ??= processRegistry();
  const registry = new Registry();
  for (const family of collectFamilies(meters)) registry.registerMetric(lazyMetric(family));
  const merged = Registry.merge([registry, ofProcess.registry]);
  // prom-client spells the number of a lag that has no sample yet in a way that not every reader of the format knows.
  return async () => (await merged.metrics()).replaceAll(" Nan\n", " NaN\n");
}

function processRegistry(): Registry {
  const register = new Registry();
  collectDefaultMetrics({ register, eventLoopMonitoringPrecision: SAMPLE_INTERVAL_MS });
  for (const name of MISNAMED) register.removeSingleMetric(name);
  for (const family of PROCESS_FAMILIES) register.registerMetric(lazyMetric(family));
  return register;
}

/** A metric as the registry expects it, whose values are computed on request. The registry has no type for this. */
function lazyMetric({ name, help, type, samples }: Family): Metric {
  const get = async () => ({
    name,
    help,
    type,
    aggregator: "sum",
    values: samples().map(({ labels, value, suffix = "" }) => ({ labels, value, metricName: name + suffix })),
  });
  return { name, help, type, get } as unknown as Metric;
}

const loop = (kind: "active" | "idle") => performance.eventLoopUtilization()[kind] / 1000;

const PROCESS_FAMILIES: readonly Family[] = [
  gauge("penstock_build_info", "Versions of Penstock and Node.js; always 1.", () => [
    { labels: { version: VERSION, node: process.version }, value: 1 },
  ]),
  gauge("process_uptime_seconds", "Since the start of the process.", () => one(process.uptime())),
  counter("nodejs_eventloop_active_seconds_total", "The event loop was at work.", () => one(loop("active"))),
  counter("nodejs_eventloop_idle_seconds_total", "The event loop waited for events.", () => one(loop("idle"))),
];
