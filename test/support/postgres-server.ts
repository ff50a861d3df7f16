/** Starts the PostgreSQL server that the files of a run share: prints its URL, and ends it when standard input ends. */
import { startPostgres } from "./postgres.ts";

const CONNECTIONS = 300;

const server = await startPostgres(CONNECTIONS);
console.log(server?.url ?? "");
process.stdin.resume().once("end", async () => {
  await server?.close();
  process.exit();
});
