#!/usr/bin/env node
// Starts Penstock in a checkout: `serve` from the bundle of `npm run build` if that is up to date, and everything else from the
// TypeScript sources. A bundle elsewhere starts without this file.
import "./node-version.js";
import { fileURLToPath } from "node:url";
import { freshBundle } from "./codegen/fresh.mjs";

const [command = "serve"] = process.argv.slice(2);
const serves = command === "serve" || command.startsWith("-");
const bundle = serves ? freshBundle(fileURLToPath(new URL("..", import.meta.url))) : null;
// No await here and below: Node before 14.8 could not read the file.
import(bundle === null ? "./from-sources.js" : bundle.href);
