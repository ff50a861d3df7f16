/** What is tested, in one module: guards.ts makes copies of it in which something is missing. */
export { createMemoryStore } from "../../core/storage/memory-store.ts";
export { openPostgresStore } from "../../core/storage/postgres-store.ts";
export { createSequence } from "../../core/storage/sequence.ts";
export { openSqliteStore } from "../../core/storage/sqlite-store.ts";
