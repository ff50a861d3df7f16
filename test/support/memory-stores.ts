/** Every engine that a memory may be over, for tests that hold on all of them. */
import { after } from "node:test";
import { sharedPostgres } from "./postgres.ts";

const server = await sharedPostgres();
after(() => server?.close());

interface TestStore {
  name: string;
  /** `store:` of a manifest: an empty store for one test. A file is beside the manifest. */
  url(): Promise<string>;
}

/** PostgreSQL is left out, and that is said, where there is no server. */
export const STORES: readonly TestStore[] = [
  { name: "memory:", url: async () => "memory:" },
  { name: "sqlite:", url: async () => "sqlite:data/test.db" },
  ...(server === null ? [] : [{ name: "postgres:", url: () => server.createDatabase() }]),
];
