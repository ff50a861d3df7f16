/** The service that is fuzzed: what service.yaml serves, offline and without waiting, with everything behind credentials. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { parse, stringify } from "yaml";
import { CONSOLE_KEY } from "../support/access-credentials.ts";
import { ROOT } from "../support/command-line.ts";
import { type Measured, serveMeasured } from "../support/measured.ts";
import { SECRET, token } from "../support/tokens.ts";

/** What npm says where everything is up to date: a real one asks the registry, and takes half a second of a processor. */
const NPM = "#!/bin/sh\necho '{}'\n";

export async function serveFuzzed(test: Pick<TestContext, "after">, transport: "uws" | "node"): Promise<Measured> {
  const manifest = parse(readFileSync(join(ROOT, "service.yaml"), "utf8"));
  Object.assign(manifest.server, { transport });
  Object.assign(manifest.providers.demo, { delay: "0s", chunks: 3 });
  manifest.memory.default.semantic.embedding = "local/hash";
  manifest.tools.delivery_days.http.headers.authorization = `Bearer ${token({ sub: "ada" })}`;
  manifest.auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  // What fills up once is full soon, so that what grows without end shows.
  manifest.logs = { level: "info", buffer: 200 };
  const env = { PORT: "0", SERVICE_CONSOLE_ACCESS_KEY: CONSOLE_KEY };
  return serveMeasured(test, stringify(manifest), env, { npm: NPM });
}
