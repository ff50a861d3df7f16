/** The engine that keeps everything in the process. */
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { storeSuite } from "../suites/store.suite.ts";

storeSuite("memory:", { open: async () => createMemoryStore(), runs: 500 });
