/** A commit whose statements are late, one after the other: what it expects holds until it happens. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import { silent } from "../support/providers.ts";
import { startStatementProxy } from "../support/statement-proxy.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

/** More than a commit has. */
const STATEMENTS = 8;
const LATE_MS = 100;

type Expected = readonly [key: string, revision: number | null];

/** What a commit expects without writing it, and what somebody else does to that meanwhile. */
const FENCES: Record<
  string,
  (store: Store, key: string) => Promise<{ expected: Expected; change(): Promise<unknown> }>
> = {
  "a row that somebody else changes": async (store, key) => {
    const revision = await store.commit({ put: [[key, '"one"']] });
    const change = () => store.commit({ put: [[key, '"two"']], expect: [[key, revision]] });
    return { expected: [key, revision], change };
  },
  "a row that somebody else clears": async (store, key) => {
    const revision = await store.commit({ put: [[key, '"one"']] });
    return { expected: [key, revision], change: () => store.commit({ clear: [key] }) };
  },
  "an absent row that somebody else puts": async (store, key) => ({
    expected: [key, null],
    change: () => store.commit({ put: [[key, '"one"']] }),
  }),
};

for (const { name, createDatabase } of COMMIT_MODES) {
  for (const [what, prepare] of Object.entries(FENCES)) {
    test(`store postgres: a commit ${name} that expects ${what} never appears to who has read that change, however late its statements are`, {
      skip,
    }, async (t) => {
      const { url } = await createDatabase(db, t);
      const proxy = await startStatementProxy(url);
      const [slow, quick] = [
        await openPostgresStore(proxy.url, { logger: silent }),
        await openPostgresStore(url, { logger: silent }),
      ];
      t.after(async () => {
        await Promise.all([slow.close(), quick.close()]);
        await proxy.close();
      });
      await slow.commit({ put: [["warm", "1"]] });
      for (let late = 0; late < STATEMENTS; late++) {
        const { expected, change } = await prepare(quick, `lease/${late}`);
        const effect = `effect/${late}`;
        let sent = 0;
        const reached = new Promise<void>((resolve) => {
          proxy.fate = () => {
            const isLate = sent++ === late;
            if (isLate) resolve();
            return { delay: isLate ? LATE_MS : 0, end: "pass" };
          };
        });
        const committed = slow.commit({ put: [[effect, "1"]], expect: [expected] }).then(
          () => true,
          () => false,
        );
        // A commit has as many statements as it has.
        await Promise.race([reached, committed]);
        await change().catch(() => undefined);
        const [row, seen] = await quick.getMany([expected[0], effect]);
        const isChanged = (row?.revision ?? null) !== expected[1];
        const happened = await committed;
        if (isChanged) assert.equal(seen !== undefined, happened, `statement ${late}`);
        assert.equal((await quick.get(effect)) !== undefined, happened, `statement ${late}`);
        proxy.fate = null;
      }
    });
  }
}
