/**
 * `npm run test:responses -- FOLDER [arguments]`: the compliance suite of Open Responses (repository openresponses/openresponses), as it
 * is shipped, against an agent whose model calls the tool that it is offered. FOLDER is a checkout of it with the package `zod`, which its
 * package.json names (`npm install --ignore-scripts`, or that package alone). Exits as the suite does. `clients/open-responses.test.ts` has
 * its cases written anew, in each run of the tests.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { newNode } from "../support/fetched.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { serveUpstream } from "../support/served-upstream.ts";

const [folder, ...rest] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: npm run test:responses -- FOLDER [arguments of the suite]");

const ends: (() => unknown)[] = [];
const { service, upstream } = await serveUpstream({ after: (end: () => unknown) => void ends.push(end) });
const weather = calls([{ name: "get_weather", input: { location: "San Francisco" } }]);
upstream.fallback(({ body }) => (body.tools === undefined ? says("Hello there friend.", { chunks: 3 }) : weather));

// Node.js 20 has no WebSocket, which the suite speaks.
const args = ["-k", "none", "-m", "assistant", "-u", `${service.url}/v1`, ...rest];
const suite = join(folder, "bin/compliance-test.ts");
const child = spawn(newNode(), ["--import", "tsx", suite, ...args], { stdio: "inherit" });
const [code] = await once(child, "exit");
for (const end of ends) await end();
process.exit(code ?? 1);
