/**
 * What the binary of uWebSockets.js for Node 20 is known to get wrong, by name. A test that fails here says that the binary has changed: if it
 * is fixed, remove the row, and the boot probe or note in the README with it.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep } from "../support/raw-http.ts";
import { type Rig, request, type Subject, startRig } from "./transport-rig.ts";

interface Known {
  name: string;
  /** Segments as they are sent. */
  send: string[];
  /** What comes back within a moment; an empty string for nothing. */
  receives: RegExp;
  /** What is dispatched. */
  dispatches: string[];
  /** What a right answer would be. */
  right: string;
}

const SILENCE = /^$/;
const chunked = (body: string) => request("POST", "/echo", ["Transfer-Encoding: chunked"], body);

const KNOWN_OF_UWS: readonly Known[] = [
  {
    name: "HTTP/1.0 is answered 505",
    send: ["GET /hello HTTP/1.0\r\nHost: test\r\n\r\n"],
    receives: /^HTTP\/1.1 505 /,
    dispatches: [],
    right: "200",
  },
  {
    name: "a request line that arrives in two segments is answered 505",
    send: ["GET /hel", "lo HTTP/1.1\r\nHost: test\r\n\r\n"],
    receives: /^HTTP\/1.1 505 /,
    dispatches: [],
    right: "200",
  },
  {
    name: "an absolute target is answered 505",
    send: ["GET http://test/hello HTTP/1.1\r\nHost: test\r\n\r\n"],
    receives: /^HTTP\/1.1 505 /,
    dispatches: [],
    right: "200",
  },
  {
    name: "a request behind one that is not answered yet ends the connection, and both go unanswered",
    send: [request("GET", "/later") + request("GET", "/hello")],
    receives: SILENCE,
    dispatches: ["GET /later"],
    right: "two replies in order",
  },
  {
    name: "a trailer behind a chunked body is taken for a request and answered 505, and the reply is lost",
    send: [chunked("2\r\nab\r\n0\r\nX-Trailer: 1\r\n\r\n")],
    receives: /^HTTP\/1.1 505 /,
    dispatches: ["POST /echo"],
    right: "200",
  },
  {
    name: "a chunk size that ends with a bare LF is accepted",
    send: [chunked("2\nab\r\n0\r\n\r\n")],
    receives: /^HTTP\/1.1 200 /,
    dispatches: ["POST /echo"],
    right: "400",
  },
  {
    name: "chunked with a capital letter is refused",
    send: [request("POST", "/echo", ["Transfer-Encoding: Chunked"], "2\r\nab\r\n0\r\n\r\n")],
    receives: /^(HTTP\/1.1 400 [\s\S]*)?$/,
    dispatches: [],
    right: "200",
  },
  {
    name: "a header whose name has an underscore: no answer",
    send: [request("GET", "/hello", ["X_Trace: a"])],
    receives: SILENCE,
    dispatches: [],
    right: "200",
  },
  ...["!", "#", "$", "%", "&", "'", "*", "+", ".", "^", "`", "|", "~"].map((sign) => ({
    name: `a header whose name has a ${sign}: no answer`,
    send: [request("GET", "/hello", [`X${sign}Trace: a`])],
    receives: SILENCE,
    dispatches: [],
    right: "200",
  })),
  {
    name: "98 headers beside Host: no answer",
    send: [request("GET", "/hello", Array(98).fill("X-Many: a"))],
    receives: SILENCE,
    dispatches: [],
    right: "200 or 431",
  },
  {
    name: "a missing Host is answered 400 with a page of HTML, HEAD too",
    send: ["HEAD /hello HTTP/1.1\r\nAccept: */*\r\n\r\n"],
    receives: /^HTTP\/1.1 400 [\s\S]*<h1>/,
    dispatches: [],
    right: "400 without a body",
  },
  {
    name: "a folded header: no answer",
    send: [request("GET", "/hello", ["X-One: a\r\n b"])],
    receives: SILENCE,
    dispatches: [],
    right: "400",
  },
  {
    name: "NUL in a header: no answer",
    send: [request("GET", "/hello", ["X-One: a\0b"])],
    receives: SILENCE,
    dispatches: [],
    right: "400",
  },
  {
    name: "a space before the colon: no answer",
    send: [request("POST", "/echo", ["Content-Length : 2"], "ab")],
    receives: SILENCE,
    dispatches: [],
    right: "400",
  },
  {
    name: "two differing Content-Lengths with a request right behind: closed without the 400",
    send: [request("POST", "/echo", ["Content-Length: 2", "Content-Length: 3"], `ab${request("GET", "/evil")}`)],
    receives: SILENCE,
    dispatches: [],
    right: "400",
  },
  {
    name: "a header without a name hides those behind it, a length too; nothing in the head tells",
    send: [request("POST", "/echo", [": x", "Content-Length: 35"], request("GET", "/evil"))],
    receives: /^HTTP\/1.1 200 /,
    dispatches: ["POST /echo", "GET /evil"],
    right: "400",
  },
];

export function knownSuite(subject: Subject): void {
  if (subject.name !== "uws") return;
  let rig: Rig;
  before(async () => {
    rig = await startRig(await subject.create());
  });
  after(() => rig.stop());

  for (const { name, send, receives, dispatches, right } of KNOWN_OF_UWS) {
    test(name, async () => {
      rig.log.length = 0;
      const client = await rig.connect();
      await client.send(...send);
      await Promise.race([client.closed, sleep(150)]);
      // Where something is to come, it is waited for.
      await client.until((received) => receives.test(received) && rig.log.length >= dispatches.length).catch(() => {});
      const changed = `the addon no longer does this; if it is now right (${right}), take the row out of KNOWN_OF_UWS`;
      assert.match(client.received, receives, changed);
      assert.deepEqual(rig.log, dispatches, changed);
      client.close();
    });
  }
}
