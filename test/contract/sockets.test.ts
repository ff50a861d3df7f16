/** Contract, "WebSockets": the echo at `/ws`, custom sockets, refusals, limits and the end, over real sockets. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const PLUGINS = {
  "sockets/room.mjs": `export default { kind: "socket", path: "/rooms/:id",
    open(peer) { peer.send({ room: peer.params.id, query: peer.query, user: peer.user }); peer.signal.addEventListener("abort", () => left.push(peer.params.id)); },
    message(peer, data) {
      if (data === "throw") throw new Error("not in this room");
      if (data === "reject") return Promise.reject(new Error("not later either"));
      if (data === "leave") return peer.close(4001, "bye");
      if (data === "nothing") return peer.send(undefined);
      if (data === "agents") return peer.call.agents.list().then((agents) => peer.send(agents.map(({ id }) => id)));
      if (data === "left") return void peer.send(left);
      peer.send({ got: data, type: typeof data });
    },
    close(peer) { left.push("closed " + peer.params.id); } };
  const left = [];`,
  "sockets/deep.mjs": `export default { kind: "socket", path: "/deep/**", open(peer) { peer.send({ deep: true }); } };`,
  "sockets/broken.mjs": `export default { kind: "socket", path: "/broken", async open() { throw new Error("cannot open"); } };`,
};

for (const transport of TRANSPORTS) {
  describe(`sockets over ${transport}`, () => {
    let service: TestService;
    const ends: (() => unknown)[] = [];

    before(async () => {
      const t = { after: (end: () => unknown) => void ends.push(end) } as never;
      const manifest = manifestWith(
        {},
        {
          server: { transport, limits: { socketMessage: "1KiB" } },
          routes: [{ use: "room" }, { use: "deep" }, { use: "broken" }],
        },
      );
      service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
    });
    after(async () => {
      for (const end of ends.reverse()) await end();
    });
    const open = (path: string, headers: Record<string, string> = {}) => openSocket(service.url + path, { headers });

    test("/ws greets, echoes JSON, says what is no JSON, and closes as it is asked to", async () => {
      const socket = await open("/ws", { "x-request-id": "mine-1" });
      assert.equal(socket.headers["x-request-id"], "mine-1");
      const hello = await socket.next();
      assert.deepEqual([hello.type, hello.success, hello.data.authenticated], ["CONNECTION_TEST", true, false]);
      assert.ok(!Number.isNaN(Date.parse(hello.data.timestamp)) && !("userId" in hello.data));
      for (const value of [{ a: [1, null] }, [], 3, "text", null]) {
        socket.send(JSON.stringify(value));
        assert.deepEqual(await socket.next(), { type: "ECHO", success: true, data: value });
      }
      socket.send("{");
      const error = await socket.next();
      assert.deepEqual([error.type, error.success], ["ERROR", false]);
      assert.match(error.error, /^message is not valid JSON: /);
      socket.socket.close(4000, "done");
      assert.equal((await socket.closed).code, 4000);
    });
  });
}
