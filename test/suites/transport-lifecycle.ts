/** Listening, limits on connections, stopping. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RawClient, sleep } from "../support/raw-http.ts";
import { eventually, request, type Subject, startRig } from "./transport-rig.ts";

export function lifecycleSuite(subject: Subject): void {
  test("listen on a taken port rejects and names host and port", async () => {
    const rig = await startRig(await subject.create());
    const options = { host: "127.0.0.1", port: rig.port, connections: 1, headLimit: 4096, stall: 120_000 };
    const second = await subject.create();
    await assert.rejects(
      async () => second.listen(() => {}, options),
      (error: NodeJS.ErrnoException) => {
        assert.equal(
          error.message,
          `cannot listen on 127.0.0.1:${rig.port}: the port is in use by another process: -p or server.port names another`,
        );
        assert.equal(error.code, "EADDRINUSE");
        return true;
      },
    );
    assert.equal((await rig.ask(request("GET", "/hello"))).body, "hello");
    await rig.stop();
  });

  test("connections beyond the limit are closed, and taken again when others have left", async () => {
    const rig = await startRig(await subject.create(), { connections: 2 });
    const clients = [await rig.connect(), await rig.connect()];
    for (const client of clients) {
      await client.send(request("GET", "/hello"));
      await client.reply();
    }
    const third = await rig.connect();
    await third.send(request("GET", "/hello"));
    await third.closed;
    assert.equal(third.received, "");
    clients[0]!.close();
    // Until that is seen, another one is closed like the third.
    let reply: Awaited<ReturnType<typeof rig.ask>> | undefined;
    for (let tries = 0; reply === undefined && tries < 1_000; tries++) {
      reply = await rig.ask(request("GET", "/hello")).catch(() => undefined);
      if (reply === undefined) await sleep(20);
    }
    assert.equal(reply?.body, "hello");
    await rig.stop();
  });

  test("stop: no new connections, running requests finish, their connections end with the reply", async () => {
    const rig = await startRig(await subject.create());
    const idle = await rig.connect();
    await idle.send(request("GET", "/hello"));
    await idle.reply();
    const waiting = await rig.connect();
    await waiting.send(request("GET", "/hang"));
    const { last: waitingExchange } = await settled(rig, "GET /hang");
    const streaming = await rig.connect();
    await streaming.send(request("GET", "/silent"));
    const { last: streamingExchange } = await settled(rig, "GET /silent");

    rig.listening.stop();
    rig.listening.stop();
    await assert.rejects(RawClient.open(rig.port));

    waitingExchange.reply(200, ["content-type", "text/plain"], "done");
    const { body, headers } = await waiting.reply();
    assert.equal(body, "done");
    assert.equal(headers.connection?.toLowerCase(), "close");
    await waiting.closed;

    streamingExchange.write("data: 1\n\n");
    streamingExchange.end();
    assert.match((await streaming.reply()).body, /data: 1\n\n$/);

    // An idle connection is closed at once, or at the latest by the reply to what it still sends.
    await idle.send(request("GET", "/hello"));
    await idle.closed;
    await rig.stop();
  });

  test("close: cuts what is left and tells the exchanges", async () => {
    const rig = await startRig(await subject.create());
    const client = await rig.connect();
    await client.send(request("GET", "/hang"));
    await settled(rig, "GET /hang");
    await rig.listening.close();
    await client.closed;
    await eventually(() => rig.aborted.length === 1, "onAbort");
    await rig.listening.close();
  });
}

async function settled(rig: Awaited<ReturnType<typeof startRig>>, label: string) {
  await eventually(() => rig.log.at(-1) === label, label);
  return { last: rig.last };
}
