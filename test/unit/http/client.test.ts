/** Where a request comes from: which headers of which proxies are believed. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { compileClients } from "../../../core/http/client.ts";

const TRUSTED = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1"];
const clientOf = compileClients(TRUSTED);
const seen = (peer: string, headers: Record<string, string>, of = clientOf) => of(peer, (name) => headers[name] ?? "");

const CLIENT = "203.0.113.5";

/** Peer, X-Forwarded-For, the address that counts. */
const CHAINS: [title: string, peer: string, forwarded: string, address: string][] = [
  ["one proxy", "10.0.0.1", CLIENT, CLIENT],
  ["two proxies", "10.0.0.1", `${CLIENT}, 10.9.9.9`, CLIENT],
  ["what the client says itself stands before it", "10.0.0.1", `1.1.1.1, 10.0.0.9, ${CLIENT}`, CLIENT],
  ["a peer that is not trusted", CLIENT, "1.1.1.1", CLIENT],
  ["nothing said", "10.0.0.1", "", "10.0.0.1"],
  ["proxies all the way: the outermost", "10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"],
  ["a single address in the list", "192.0.2.7", CLIENT, CLIENT],
  ["its neighbour is none of it", "192.0.2.8", CLIENT, "192.0.2.8"],
  ["IPv6", "2001:db8::5", "2001:db9::1", "2001:db9::1"],
  ["an IPv6 loopback", "::1", CLIENT, CLIENT],
  ["an IPv6 zone", "fe80::1%eth0", CLIENT, "fe80::1%eth0"],
  ["an IPv4 address in IPv6", "::ffff:10.0.0.1", CLIENT, CLIENT],
  ["the same further out", "10.0.0.1", `1.1.1.1, ::ffff:10.0.0.2`, "1.1.1.1"],
  ["ports", "10.0.0.1", `${CLIENT}:4711, 10.0.0.2:80`, CLIENT],
  ["brackets", "10.0.0.1", "[2001:db9::1]:4711", "2001:db9::1"],
  ["brackets without a port", "10.0.0.1", "[2001:db9::1]", "2001:db9::1"],
  ["unknown hides all before it", "10.0.0.1", `${CLIENT}, unknown, 10.0.0.2`, "10.0.0.2"],
  ["so does nonsense", "10.0.0.1", `${CLIENT}, 999.1.1.1`, "10.0.0.1"],
  ["an empty item", "10.0.0.1", `${CLIENT}, ,10.0.0.2`, "10.0.0.2"],
  ["spaces", "10.0.0.1", `  ${CLIENT}  `, CLIENT],
  ["a peer without an address", "", CLIENT, ""],
];

describe("the address", () => {
  for (const [title, peer, forwarded, address] of CHAINS) {
    test(title, () => assert.equal(seen(peer, { "x-forwarded-for": forwarded }).address, address));
  }

  test("whatever stands before the first hop that is not trusted changes nothing", () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 60 }), fc.ipV4(), (before, client) => {
        fc.pre(!client.startsWith("10.") && client !== "192.0.2.7");
        const { address } = seen("10.0.0.1", { "x-forwarded-for": `${before},${client}, 10.1.1.1` });
        assert.equal(address, client);
      }),
    );
  });
});

test("scheme and host are those that the same proxy tells; of a list, the one as far back as the client", () => {
  const told = (headers: Record<string, string>) => {
    const { scheme, host, origin } = seen("10.0.0.1", { host: "inner:3141", ...headers });
    return [scheme, host, origin];
  };
  const proto = "x-forwarded-proto";
  const host = "x-forwarded-host";
  const list = "x-forwarded-for";
  assert.deepEqual(told({}), ["http", "inner:3141", "http://inner:3141"]);
  assert.deepEqual(told({ [list]: CLIENT, [proto]: "https", [host]: "api.example" }), [
    "https",
    "api.example",
    "https://api.example",
  ]);
  const chain = {
    [list]: `${CLIENT}, 10.0.0.2`,
    [proto]: "http, https, http",
    [host]: "liar.example, api.example, inner",
  };
  assert.deepEqual(told(chain), ["https", "api.example", "https://api.example"]);
  assert.deepEqual(told({ ...chain, [proto]: "HTTPS", [host]: "[2001:db8::9]:8443" }), [
    "https",
    "[2001:db8::9]:8443",
    "https://[2001:db8::9]:8443",
  ]);
  for (const bad of ["a b", "a/b", "a@b", "<x>", "a,", "x".repeat(300), "a:b", "-a", "a.."])
    assert.equal(told({ [host]: bad })[1], "inner:3141", bad);
  assert.equal(told({ [proto]: "javascript" })[0], "http");
  assert.deepEqual(told({ host: "a/b" }), ["http", "a/b", null]);
});

test("of a peer that is not trusted, and without a list, no header is believed", () => {
  const lies = { host: "h", "x-forwarded-for": "1.1.1.1", "x-forwarded-proto": "https", "x-forwarded-host": "evil" };
  const honest = { address: CLIENT, scheme: "http", host: "h", origin: null };
  assert.deepEqual(seen(CLIENT, lies), honest);
  assert.deepEqual(seen(CLIENT, lies, compileClients([])), honest);
  assert.deepEqual(
    seen(CLIENT, { ...lies, forwarded: "for=1.1.1.1;proto=https" }, compileClients(["0.0.0.0/0"])).address,
    "1.1.1.1",
  );
  assert.deepEqual(seen("10.0.0.1", { host: "h", forwarded: "for=1.1.1.1;proto=https;host=evil" }), {
    address: "10.0.0.1",
    scheme: "http",
    host: "h",
    origin: "http://h",
  });
});
