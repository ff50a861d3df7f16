/** Requests sent without waiting for replies. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Rig, request, type Subject, startRig } from "./transport-rig.ts";

export function pipelineSuite(subject: Subject): void {
  let rig: Rig;
  before(async () => {
    rig = await startRig(await subject.create());
  });
  after(() => rig.stop());

  test("requests in one segment that are answered at once: replies in order", async () => {
    const client = await rig.connect();
    await client.send(
      request("GET", "/hello") + request("GET", "/bytes") + request("POST", "/e", ["Content-Length: 2"], "ab"),
    );
    const replies = await client.replies(3);
    assert.deepEqual(
      replies.map(({ body }) => (body.startsWith("{") ? JSON.parse(body).text : body)),
      ["hello", "hi", "ab"],
    );
    client.close();
  });

  test("requests behind a reply that ends the connection are not dispatched", async () => {
    for (const first of [request("GET", "/last"), request("POST", "/missing", ["Content-Length: 900000"])]) {
      rig.log.length = 0;
      const client = await rig.connect();
      await client.send(first + request("GET", "/evil"));
      await client.closed;
      assert.equal(rig.log.length, 1);
    }
  });

  test("requests behind an asynchronous reply: answered in order, or the connection ends", async () => {
    rig.log.length = 0;
    const client = await rig.connect();
    await client.send(request("GET", "/later") + request("GET", "/hello"));
    await client.until((received) => received.endsWith("hello"));
    if (client.isClosed) assert.deepEqual(rig.log, ["GET /later"]);
    else
      assert.deepEqual(
        (await client.replies(2)).map(({ body }) => body),
        ["later", "hello"],
      );
    client.close();
  });
}
