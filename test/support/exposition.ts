/**
 * A strict reader of Prometheus' text format 0.0.4, written from its description alone
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Throws at the first line that is not of the format.
 */
import assert from "node:assert/strict";

export interface ParsedFamily {
  help: string;
  type: string;
  /** Values by series: the name and its labels, sorted by their names. */
  samples: Map<string, number>;
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*/;
const LABEL = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"/;
const NUMBER = /^(?:[+-]?Inf|NaN|[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)$/;
const SUFFIXES: Record<string, readonly string[]> = {
  histogram: ["_bucket", "_sum", "_count"],
  counter: [""],
  gauge: [""],
};

export function parseExposition(text: string): Map<string, ParsedFamily> {
  assert.ok(text.endsWith("\n"), "the last line ends with a line feed");
  assert.doesNotMatch(text, /\r/);
  const families = new Map<string, ParsedFamily>();
  let helped: { name: string; help: string } | null = null;
  let current = "";
  for (const line of text.slice(0, -1).split("\n")) {
    if (line === "") continue;
    const comment = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line);
    if (comment?.[1] === "HELP") {
      assert.match(comment[3]!, /^(?:[^\\]|\\[\\n])*$/, line);
      helped = { name: comment[2]!, help: comment[3]! };
      continue;
    }
    if (comment?.[1] === "TYPE") {
      const [, , name, type] = comment as unknown as [string, string, string, string];
      assert.equal(NAME.exec(name)?.[0], name, line);
      assert.ok(type in SUFFIXES, line);
      assert.equal(helped?.name, name, `HELP stands before TYPE: ${line}`);
      assert.ok(!families.has(name), `a family is one group: ${line}`);
      families.set(name, { help: helped!.help, type, samples: new Map() });
      current = name;
      continue;
    }
    assert.ok(!line.startsWith("#"), line);
    const family = families.get(current);
    assert.ok(family !== undefined, `a sample stands below its TYPE: ${line}`);
    const { name, series, value } = sampleOf(line);
    assert.ok(
      SUFFIXES[family.type]!.some((suffix) => name === current + suffix),
      `${line} is no sample of ${current}`,
    );
    assert.ok(!family.samples.has(series), `${series} is there twice`);
    family.samples.set(series, value);
  }
  for (const [name, family] of families) if (family.type === "histogram") checkHistogram(name, family.samples);
  return families;
}

function sampleOf(line: string): { name: string; series: string; value: number } {
  const name = NAME.exec(line)?.[0];
  assert.ok(name !== undefined, line);
  let rest = line.slice(name.length);
  const labels = new Map<string, string>();
  if (rest.startsWith("{")) {
    rest = rest.slice(1);
    while (!rest.startsWith("}")) {
      const label = LABEL.exec(rest);
      assert.ok(label !== null, line);
      assert.ok(!labels.has(label[1]!), line);
      labels.set(label[1]!, label[2]!);
      rest = rest.slice(label[0].length);
      if (rest.startsWith(",")) rest = rest.slice(1);
      else assert.ok(rest.startsWith("}"), line);
    }
    rest = rest.slice(1);
  }
  assert.ok(rest.startsWith(" "), line);
  const value = rest.slice(1);
  assert.match(value, NUMBER, line);
  return {
    name,
    series: seriesName(name, Object.fromEntries(labels)),
    value: Number(value.replace("Inf", "Infinity")),
  };
}

export function seriesName(name: string, labels: Record<string, string>): string {
  const texts = Object.keys(labels)
    .sort()
    .map((label) => `${label}="${labels[label]}"`);
  return texts.length === 0 ? name : `${name}{${texts.join(",")}}`;
}

/** Buckets grow with their bounds, the endless one is the count, and each histogram has a sum. */
function checkHistogram(name: string, samples: Map<string, number>): void {
  const buckets = new Map<string, [bound: number, value: number][]>();
  for (const [series, value] of samples) {
    if (!series.startsWith(`${name}_bucket`)) continue;
    const bound = /\ble="([^"]*)"/.exec(series)?.[1];
    assert.ok(bound !== undefined, `${series} has no bound`);
    const rest = series
      .slice(`${name}_bucket`.length)
      .replace(/,?le="[^"]*"/, "")
      .replace("{,", "{")
      .replace("{}", "");
    const list = buckets.get(rest) ?? [];
    list.push([Number(bound.replace("Inf", "Infinity")), value]);
    buckets.set(rest, list);
  }
  for (const [labels, list] of buckets) {
    for (const [index, [bound, value]] of list.entries()) {
      if (index === 0) continue;
      assert.ok(bound > list[index - 1]![0], `${name}${labels}: bounds rise`);
      assert.ok(value >= list[index - 1]![1], `${name}${labels}: buckets count up`);
    }
    assert.equal(list.at(-1)![0], Number.POSITIVE_INFINITY);
    assert.equal(samples.get(`${name}_count${labels}`), list.at(-1)![1], `${name}${labels}`);
    assert.ok(samples.has(`${name}_sum${labels}`), `${name}${labels} has a sum`);
  }
}
