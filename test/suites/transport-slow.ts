/** Heads and bodies that never end are cut. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sleep } from "../support/raw-http.ts";
import { eventually, fill, request, type Subject, startRig } from "./transport-rig.ts";

/** Milliseconds; uws has a limit of its own, of about twelve seconds. */
const LIMIT = 300;

export function slowSuite(subject: Subject): void {
  test("heads, bodies and readers that make no progress are cut; one that waits for its reply is not", async () => {
    const rig = await startRig(await subject.create(LIMIT));
    const every = subject.name === "uws" ? 500 : 50;
    const starts = [
      "GET /hello HTTP/1.1\r\nHost: test\r\nX-Slow: ",
      request("POST", "/echo", ["Content-Length: 100000"]),
      request("POST", "/echo", ["Transfer-Encoding: chunked"], "fff\r\n"),
    ];
    const waiting = await rig.connect();
    await waiting.send(request("GET", "/hang"));
    const stalled = await rig.connect();
    await stalled.send(request("GET", "/silent"));
    await eventually(() => rig.log.at(-1) === "GET /silent", "dispatch");
    stalled.socket.pause();
    const { waiting: drained } = await fill(rig.last);
    const clients = await Promise.all(starts.map(() => rig.connect()));
    await Promise.all(clients.map((client, index) => client.send(starts[index]!)));
    const started = Date.now();
    while (clients.some((client) => !client.isClosed)) {
      assert.ok(Date.now() - started < 25_000, "cut in the end");
      for (const client of clients) if (!client.isClosed) client.socket.write("a");
      await sleep(every);
    }
    for (const client of clients) assert.match(client.received, /^(HTTP\/1.1 4(00|08) [\s\S]*)?$/);
    await drained;
    assert.deepEqual(rig.aborted.includes("GET /silent"), true);
    assert.equal(waiting.isClosed, false);
    await rig.stop();
  });
}
