#!/usr/bin/env node
// Starts Penstock from its TypeScript sources. A production bundle (npm run build) starts without this file.
import module from "node:module";

if (module.registerHooks === undefined) {
  // This version of Node runs hooks in a thread of their own: only that one loads tsx and esbuild, not both.
  process.setSourceMapsEnabled(true);
  module.register("tsx/esm", import.meta.url, { data: {} });
} else {
  const { register } = await import("tsx/esm/api");
  register();
}
const { main } = await import("./command/main.ts");
await main(process.argv.slice(2));
