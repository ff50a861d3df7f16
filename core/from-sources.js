// Starts Penstock from the TypeScript sources, whether there is a bundle or not.
import module from "node:module";

if (module.registerHooks === undefined) {
  // This version of Node runs hooks in a separate thread: only that one loads tsx and esbuild, not both.
  process.setSourceMapsEnabled(true);
  module.register("tsx/esm", import.meta.url, { data: {} });
} else {
  const { register } = await import("tsx/esm/api");
  register();
}
const { main } = await import("./command/main.ts");
await main(process.argv.slice(2));
