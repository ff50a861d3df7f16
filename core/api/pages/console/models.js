/** How models and the store are doing, from the numbers of `GET /metrics`. */
import { numberText } from "./activity-chart.js";
import { element, replace } from "./elements.js";
import { dollarText, durationText } from "./formats.js";
import { keepAsking } from "./live.js";
import { badge, table } from "./parts.js";
import { CIRCUIT, samplesOf, sum } from "./samples.js";
import { serviceNavigation } from "./service-views.js";

/** @import { Sample } from "./samples.js" */
/** @import { Place } from "./router.js" */

/** Between two requests, in milliseconds. */
const PAUSE = 5000;
/** By the value of the metric. */
const CIRCUITS = ["ready", "on trial", "unavailable"];
/** Of the answers, the share that is as fast as the time shown. */
const SHARE = 0.95;

/** The bound below which most of a histogram lies. @param {readonly Sample[]} samples @param {string} name */
function mostWithin(samples, name) {
  const total = sum(samples, `${name}_count`);
  if (total === 0) return "";
  const buckets = samples.filter((each) => each.name === `${name}_bucket` && each.value >= total * SHARE);
  const bound = Math.min(
    ...buckets.map(({ labels }) => (labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels.le))),
  );
  return Number.isFinite(bound) ? `within ${durationText(bound * 1000)}` : "longer";
}

/** @param {Place} place */
export function modelsView(place) {
  const { api, signal, body } = place;
  const failure = element("div");
  const shown = element("div", {}, element("p", { class: "quiet" }, "Loading…"));
  body.append(serviceNavigation("models"), failure, shown);
  const ask = async () => {
    const samples = samplesOf(await api.text("metrics", { signal }));
    if (!signal.aborted) replace(shown, ...tables(samples));
  };
  void keepAsking(place, PAUSE, ask, failure).then(() => shown.querySelector(".quiet")?.remove());
}

/** @param {readonly Sample[]} samples */
function tables(samples) {
  const models = samples.filter(({ name }) => name === CIRCUIT);
  const rows = models.map(({ labels: { model = "" }, value }) => {
    const own = samples.filter(({ labels }) => labels.model === model);
    const cost = sum(own, "penstock_model_cost_usd_total");
    return [
      element("code", {}, model),
      badge(CIRCUITS[value] ?? ""),
      numberText(sum(own, "penstock_model_calls_total")),
      numberText(sum(own, "penstock_model_calls_total", ({ outcome }) => outcome !== "ok" && outcome !== "aborted")),
      mostWithin(own, "penstock_model_call_duration_seconds"),
      numberText(sum(own, "penstock_model_tokens_total")),
      cost > 0 && dollarText(cost),
    ];
  });
  const commits = "penstock_store_commit";
  return [
    element(
      "p",
      { class: "hint" },
      "Of this process, since its start. One that failed too often is unavailable until a trial goes well. 95 of 100 answers came in the time.",
    ),
    table("Models", ["Model", "Status", "Calls", "Failed", "Answers", "Tokens", "Cost"], rows),
    table(
      "Store",
      ["Store", "Commits", "Failed", "On disk"],
      [
        [
          "Commits",
          numberText(sum(samples, `${commits}s_total`)),
          numberText(sum(samples, `${commits}s_total`, ({ outcome }) => outcome === "error")),
          mostWithin(samples, `${commits}_duration_seconds`),
        ],
      ],
    ),
  ];
}
