/** Contract, "WebSockets": the echo at `/ws`, custom sockets, refusals, limits and the end, over real sockets. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { openSocket, refusedSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const PLUGINS = {
  "sockets/room.mjs": `export default { kind: "socket", path: "/rooms/:id", summary: "Talks",
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
  describe(`WS routes over ${transport}`, () => {
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
    const refused = (path: string, headers: Record<string, string> = {}) =>
      refusedSocket(service.url + path, { headers });

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

    test("a handshake whose Sec-WebSocket-Protocol is no list of different names is refused 400 in the envelope", async () => {
      for (const offered of ["a b", "chat, chat", "chat,", "(chat)", "chat, \u00e9"]) {
        const { status, headers, body } = await refused("/ws", { "sec-websocket-protocol": offered });
        assert.equal(status, 400, offered);
        assert.equal(headers["x-error-code"], "invalid_input");
        assert.match(headers["x-request-id"]!, /./);
        const { success, error } = JSON.parse(body);
        assert.equal(success, false);
        assert.match(error, /^Sec-WebSocket-Protocol: expected different names, separated by commas/);
      }
      // One that offers nothing is as good as none.
      await (await open("/ws", { "sec-websocket-protocol": "" })).close();
    });

    test("what is no handshake is 426 on the path of a socket, other methods are 405, and no socket is 404", async () => {
      for (const path of ["/ws", "/rooms/1", "/deep", "/deep/er/still"]) {
        const reply = await service.get(path);
        const body = (await reply.json()) as { success: boolean; error: string };
        assert.deepEqual([reply.status, body.success], [426, false], path);
        assert.match(body.error, /WebSocket/);
        assert.deepEqual(
          ["upgrade", "sec-websocket-version", "x-error-code"].map((name) => reply.headers.get(name)),
          ["websocket", "13", "upgrade_required"],
        );
        const posted = await service.post(path, {});
        assert.deepEqual([posted.status, posted.headers.get("allow")], [405, "GET"], path);
        await posted.text();
      }
      for (const path of [
        "/nowhere",
        "/ws//",
        "/WS",
        "/%77s",
        "/ws/nowhere",
        "/rooms",
        "/rooms/a/b",
        "/agents",
        "//ws",
      ]) {
        const { status, body, headers } = await refused(path);
        assert.equal(status, 404, path);
        assert.equal((JSON.parse(body) as { success: boolean }).success, false);
        assert.ok(headers["x-request-id"] && headers["x-error-code"] === "not_found");
      }
    });

    test("a custom socket has its parameters, its query without credentials, and JSON both ways", async () => {
      const socket = await open("/rooms/caf%C3%A9?a=1&a=2&key=k&token=t&dev=true&b=%20");
      assert.deepEqual(await socket.next(), { room: "café", query: { a: "2", b: " " }, user: null });
      for (const [sent, got] of [
        ['{"n":[1]}', { got: { n: [1] }, type: "object" }],
        ["7", { got: 7, type: "number" }],
        ["no json", { got: "no json", type: "string" }],
      ] as const) {
        socket.send(sent);
        assert.deepEqual(await socket.next(), got);
      }
      socket.send("agents");
      assert.deepEqual(await socket.next(), ["assistant"]);
      socket.send("leave");
      assert.deepEqual(await socket.closed, { code: 4001, reason: "bye" });
      const other = await open("/rooms/2");
      await other.next();
      other.send("left");
      assert.deepEqual(await other.next(), ["café", "closed café"]);
      await other.close();
      const broken = await refused("/rooms/%zz");
      assert.equal(broken.status, 400);
      assert.match(broken.body, /id in the path is not valid percent-encoding/);
    });

    test("a socket whose path ends in ** answers there and everywhere below", async () => {
      for (const path of ["/deep", "/deep/er", "/deep/er/", "/deep//er/still?x=1"]) {
        const socket = await open(path);
        assert.deepEqual(await socket.next(), { deep: true }, path);
        await socket.close();
      }
      assert.equal((await refused(`/deep${"/er".repeat(40)}`)).status, 404);
      assert.equal((await refused("/deeper")).status, 404);
    });

    test("a handler that throws or rejects closes its socket (1011), is logged, and harms no other", async () => {
      const other = await open("/rooms/other");
      await other.next();
      service.log.length = 0;
      for (const [say, message] of [
        ["throw", "not in this room"],
        ["reject", "not later either"],
        ["nothing", "send: undefined is not JSON"],
      ] as const) {
        const socket = await open("/rooms/1");
        await socket.next();
        socket.send(say);
        assert.deepEqual(await socket.closed, { code: 1011, reason: "internal error" });
        const line = service.log.find((each) => String(each.msg).includes(message));
        assert.deepEqual([line?.level, line?.operation], ["error", "custom.room"], message);
      }
      assert.equal((await (await open("/broken")).closed).code, 1011);
      assert.ok(service.log.some((line) => String(line.msg).includes("cannot open")));
      other.send("1");
      assert.equal((await other.next()).got, 1);
      await other.close();
    });

    test("limits.socketMessage: a message that is larger closes its socket (1009), binary ones too (1003)", async () => {
      const socket = await open("/ws");
      await socket.next();
      socket.send(`"${"x".repeat(1022)}"`);
      assert.equal((await socket.next()).data.length, 1022);
      socket.send(`"${"x".repeat(1023)}"`);
      assert.equal((await socket.closed).code, 1009);
      const binary = await open("/ws");
      binary.socket.send(Buffer.from("{}"), { binary: true });
      assert.equal((await binary.closed).code, 1003);
    });

    test("WS /ws: a client that does not read loses messages, and is told how many", async () => {
      const socket = await open("/ws");
      await socket.next();
      socket.socket.pause();
      const text = JSON.stringify("x".repeat(1000));
      const sent = Array.from({ length: 16_000 }, () => new Promise((resolve) => socket.socket.send(text, resolve)));
      // What is left then is in buffers of the kernel, which are smaller than half of it.
      await Promise.all(sent);
      socket.socket.resume();
      let echoes = 0;
      let dropped = 0;
      while (echoes + dropped < 16_000) {
        const message = await socket.next();
        if (message.type === "DROPPED") dropped += message.count;
        else echoes++;
      }
      assert.ok(dropped > 1_000, "what is held is bounded");
      assert.equal(echoes + dropped, 16_000);
      await socket.close();
    });

    test("GET /metrics counts handshakes by their socket, and those that are open", async () => {
      const socket = await open("/rooms/metered");
      const page = await (await service.get("/metrics")).text();
      assert.match(page, /^penstock_sockets_open 1$/m);
      assert.match(page, /^penstock_http_requests_total\{.*route="\/rooms\/:id".*status="1xx".*\} [1-9]/m);
      await socket.close();
    });

    test("GET /doc lists sockets under x-websockets, custom ones too", async () => {
      const document = (await (await service.get("/doc")).json()) as { "x-websockets": { path: string }[] };
      const listed = document["x-websockets"];
      assert.deepEqual(
        ["/ws", "/rooms/{id}", "/deep/**"].filter((path) => !listed.some((each) => each.path === path)),
        [],
      );
      assert.deepEqual(
        listed.find(({ path }) => path === "/rooms/{id}"),
        {
          operationId: "custom.room",
          path: "/rooms/{id}",
          summary: "Talks",
          parameters: [{ name: "id", in: "path", required: true }],
        },
      );
    });

    test("no credential of a query reaches the log", async () => {
      for (const path of ["/ws?key=secret-1", "/rooms/1?token=secret-2", "/nowhere?token=secret-3"])
        await open(path).then(
          (socket) => socket.close(),
          () => {},
        );
      assert.ok(service.log.some((line) => line.path === "/rooms/1" && line.status === 101));
      assert.ok(!JSON.stringify(service.log).includes("secret-"));
    });
  });
}
