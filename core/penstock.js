#!/usr/bin/env node
// Starts Penstock in a checkout: `serve` from the bundle of `npm run build` if that is up to date, and everything else from the
// TypeScript sources. A bundle elsewhere starts without this file.
import module from "node:module";
import { fileURLToPath } from "node:url";
import { freshBundle } from "./codegen/fresh.mjs";

const argv = process.argv.slice(2);
const serves = argv[0] === "serve" || argv[0] === undefined || argv[0].startsWith("-");
const bundle = serves ? freshBundle(fileURLToPath(new URL("..", import.meta.url))) : null;
if (bundle !== null) await import(bundle.href);
else {
  if (module.registerHooks === undefined) {
    // This version of Node runs hooks in a separate thread: only that one loads tsx and esbuild, not both.
    process.setSourceMapsEnabled(true);
    module.register("tsx/esm", import.meta.url, { data: {} });
  } else {
    const { register } = await import("tsx/esm/api");
    register();
  }
  const { main } = await import("./command/main.ts");
  await main(argv);
}
