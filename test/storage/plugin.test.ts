/** A store that a plugin makes, without a `tail` of its own. */
import { pino } from "pino";
import { createHost } from "../../core/registry/host.ts";
import { Registry } from "../../core/registry/registry.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openStore } from "../../core/storage/open-store.ts";
import { storeSuite } from "../suites/store.suite.ts";

const logger = pino({ level: "silent" });

const plugin = {
  kind: "store" as const,
  create() {
    const { tail: _, ...store } = createMemoryStore();
    return { ...store, kind: "plain" };
  },
};

storeSuite("of a plugin", {
  async open(t) {
    const host = createHost({ logger, env: {} });
    t.after(() => host.close());
    const registry = new Registry([{ kind: "store", name: "plain", file: "/plain.ts", plugin }]);
    return openStore("plain", { logger, registry, host, folder: "/" });
  },
});
