/** Whose an execution is that names no user. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { dataOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const TOKEN = "token-of-ada-0123456789";
const CONSOLE_KEY = "a key of the console 0123456789";

for (const isolation of ["user", "none"])
  test(`POST /workflows/:id/execute with a token and no options.userId: the record has the token's user, with isolation: ${isolation}`, async (t) => {
    const auth = {
      mode: "authNext",
      isolation,
      provider: { use: "static", tokens: { [TOKEN]: { id: "ada" } } },
    };
    const workflows = { one: { steps: [{ id: "a", andThen: { set: { done: true } } }] } };
    const service = await startService(t, manifestWith({}, { auth, workflows }), {
      env: { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: CONSOLE_KEY },
    });
    await dataOf(service.post("/workflows/one/execute", { input: {} }, { authorization: `Bearer ${TOKEN}` }));
    const [record] = await dataOf(service.get("/workflows/executions", { "x-console-access-key": CONSOLE_KEY }));
    assert.equal(record.userId, "ada");
  });
