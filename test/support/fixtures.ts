/** Plugins for tests: tools that meet, fail and tell their call, and a provider that says whatever it is told. */
import { fileURLToPath } from "node:url";

export const FIXTURES = fileURLToPath(new URL("../fixtures/plugins", import.meta.url));
