#!/usr/bin/env node
// Starts Penstock from its TypeScript sources. A production bundle (npm run build) starts without this file.
import { register } from "tsx/esm/api";

register();
const { main } = await import("./main.ts");
await main(process.argv.slice(2));
