/** Every engine that a memory may be over, for tests that hold on all of them. */
import { after } from "node:test";
import { sharedPostgres } from "./postgres.ts";

const server = await sharedPostgres();
after(() => server?.close());

interface TestStore {
  name: string;
  /** `store:` of a manifest: an empty store for one test. A file is beside the manifest. */
  url(test: Ended): Promise<string>;
}

interface Ended {
  after(end: () => Promise<void>): void;
}

/** Databases whose tests have ended, and their services with them: to make one anew costs ten times as much as to empty it. */
const free: string[] = [];

async function emptyDatabase({ createDatabase, query }: NonNullable<typeof server>, test: Ended): Promise<string> {
  const used = free.pop();
  if (used !== undefined) await query("DROP SCHEMA public CASCADE; CREATE SCHEMA public", used);
  const url = used ?? (await createDatabase());
  test.after(async () => void free.push(url));
  return url;
}

/** PostgreSQL is left out, and that is said, where there is no server. */
export const STORES: readonly TestStore[] = [
  { name: "memory:", url: async () => "memory:" },
  { name: "sqlite:", url: async () => "sqlite:data/test.db" },
  ...(server === null ? [] : [{ name: "postgres:", url: (test: Ended) => emptyDatabase(server, test) }]),
];
