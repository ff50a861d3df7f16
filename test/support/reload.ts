/** A running service whose manifest is written anew and reloaded. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseExposition } from "./exposition.ts";
import type { TestService } from "./service.ts";

interface Outcome {
  status: number;
  data?: { reloaded: boolean; changes: { path: string; change: string }[] };
  error?: string;
}

export const rewrite = (service: TestService, manifest: object | string) =>
  writeFileSync(
    join(service.booted.loaded.folder, "service.yaml"),
    typeof manifest === "string" ? manifest : JSON.stringify({ logs: { level: "debug" }, ...manifest }),
  );

export async function reload(service: TestService, manifest: object | string): Promise<Outcome> {
  rewrite(service, manifest);
  const response = await service.post("/reload", {});
  return { status: response.status, ...((await response.json()) as object) };
}

/** Reloads, and says which settings have changed. */
export async function changesOf(service: TestService, manifest: object): Promise<string[]> {
  const { status, data, error } = await reload(service, manifest);
  assert.equal(status, 200, error);
  assert.equal(data?.reloaded, true);
  return data!.changes.map(({ path, change }) => `${change} ${path}`);
}

export const says = (text: string) => ({ providers: { demo: { use: "scripted", replies: [{ text }] } } });
/** Says this slowly: some seconds, so that much may happen meanwhile. */
export const saysSlowly = (text: string) => ({
  providers: { demo: { use: "scripted", delay: "100ms", chunks: 10, replies: [{ text }] } },
});
export const textOf = async (service: TestService, agent = "assistant"): Promise<string> => {
  const reply = (await (await service.post(`/agents/${agent}/text`, { input: "hello" })).json()) as {
    data?: { text: string };
  };
  return reply.data?.text ?? JSON.stringify(reply);
};
/** The sum of all series of a metric that have these labels. */
export async function metric(service: TestService, name: string, labels: Record<string, string> = {}): Promise<number> {
  const family = parseExposition(await (await service.get("/metrics")).text()).get(name);
  const wanted = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
  const series = [...(family?.samples ?? [])].filter(([text]) => wanted.every((label) => text.includes(label)));
  return series.reduce((sum, [, value]) => sum + value, 0);
}
