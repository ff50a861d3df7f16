/** A tool that says how often it ran and with what, and services where a person must approve it. */

import { join } from "node:path";
import type { TestContext } from "node:test";
import { pluginFolder } from "./plugin-folder.ts";
import { manifestWith, startService, type TestOptions, type TestService } from "./service.ts";
import { temporaryFolder } from "./storage.ts";
import { SECRET, token } from "./tokens.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests look into replies as they need
type Loose = any;

/** What ran, in order: every service of this process writes to it. */
export const ran: Loose[] = [];
(globalThis as { penstockPaid?: Loose[] }).penstockPaid = ran;

export const PAY_PLUGIN = {
  "tools/pay.mjs": `export default { kind: "tool", name: "pay",
    parameters: { type: "object", properties: { amount: { type: "number" } }, required: ["amount"], additionalProperties: false },
    execute: (input, call) => { globalThis.penstockPaid.push(input.amount); return { paid: input.amount, key: call.idempotencyKey ?? null }; } };`,
};

/** A call of the tool `pay`. */
export const pay = (amount: number | string) => ({ tool: "pay", input: { amount } });
/** What the model says that calls it: once for `pay 5`, twice for `pay both`. */
export const PAYS = [
  { when: "pay both", call: [pay(1), pay(2)] },
  { when: "pay (\\d+)", call: pay("{{ int(match[1]) }}") },
];

const CONSOLE_KEY = "the-key-of-the-console";
export const AUTH = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
export const as = (sub: string) => ({ authorization: `Bearer ${token({ sub })}` });
export const CONSOLE = { "x-console-access-key": CONSOLE_KEY };

/** With the tool `pay`, which a person must approve. @param pay what the manifest says of it beside */
export const approvalManifest = ({ pay = {}, ...rest }: Record<string, unknown> = {}) =>
  manifestWith({}, { tools: { pay: { use: "pay", approval: true, ...(pay as object) } }, ...rest });

/** Serves `approvalManifest`. */
export function serveApprovals(
  test: Parameters<typeof startService>[0],
  manifest: Record<string, unknown> = {},
  { plugins = [], ...options }: TestOptions = {},
) {
  const folder = pluginFolder(test as never, PAY_PLUGIN);
  const env = { SERVICE_CONSOLE_ACCESS_KEY: CONSOLE_KEY };
  return startService(test, approvalManifest(manifest), { env, plugins: [folder, ...plugins], ...options });
}

/** Serves a manifest again and again on one SQLite file; the process before is gone without a word. */
export async function restarts(
  test: TestContext,
  manifest: Record<string, unknown>,
  plugins: NonNullable<TestOptions["plugins"]> = [],
) {
  const store = `sqlite:${join(await temporaryFolder(test), "test.db")}`;
  let running: TestService | null = null;
  return async () => {
    await running?.kill();
    running = await serveApprovals(test, { ...manifest, store }, { plugins });
    return running;
  };
}
