/**
 * A process that stops itself (SIGSTOP) around its first COMMIT to PostgreSQL, as one does whose machine is suspended: with `before` in
 * the open transaction, with `after` when the statement has been sent that ends it. Once it goes on it says which revision it got.
 */
import pg from "pg";
import { pino } from "pino";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";

const [url, when, last] = process.argv.slice(2);
const store = await openPostgresStore(url, { logger: pino({ level: "silent" }) });
await store.commit({ put: [["warm", "1"]] });

const query = pg.Client.prototype.query;
let stopped = false;
pg.Client.prototype.query = function (...args) {
  if (stopped || ![args[0].name, args[0].text].includes(last)) return query.apply(this, args);
  stopped = true;
  if (when === "before") process.kill(process.pid, "SIGSTOP");
  const result = query.apply(this, args);
  if (when === "after") process.kill(process.pid, "SIGSTOP");
  return result;
};
const said = await store.commit({ put: [["own", "1"]], add: [["n", 1]], expect: [["own", null]] }).then(
  (revision) => ({ revision }),
  (error) => ({ error: String(error) }),
);
await store.commit({ put: [["next", "1"]] });
await store.close();
console.log(JSON.stringify(said));
