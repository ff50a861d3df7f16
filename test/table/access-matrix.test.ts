/**
 * Every route with every credential in every mode: who is authorized and who is refused. What is expected follows from the tables in
 * test/support/access-table.ts.
 */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import { credentials } from "../support/access-credentials.ts";
import { mistakes, type Send, targetOf, textOf } from "../support/access-mistakes.ts";
import { MODES, titleOf } from "../support/access-modes.ts";
import { makeKeys, type Secured, type SecuredOptions, startSecured } from "../support/access-services.ts";
import { CONTRACT, CUSTOM_ROUTES, type Endpoint, needsOf, opens, UNANSWERED } from "../support/access-table.ts";
import { inject } from "../support/inject.ts";
import type { Loose } from "../support/served-upstream.ts";
import { TRANSPORTS } from "../support/transports.ts";

const KEYS = makeKeys();
const EVERY: readonly Endpoint[] = [...CONTRACT, ...CUSTOM_ROUTES, ...UNANSWERED];
const SERVED = new Set([...ROUTES, ...CUSTOM_ROUTES].map(textOf));
const isServed = (endpoint: Endpoint) => SERVED.has(textOf(endpoint).replace(/^HEAD /, "GET "));
const injected =
  ({ service }: Secured): Send =>
  (request) =>
    inject(service.dispatch, request);

const fetched =
  ({ service }: Secured): Send =>
  async ({ method, path, headers = {} }) => {
    const body = method === "GET" || method === "HEAD" ? null : "{}";
    const reply = await fetch(service.url + path, {
      method,
      headers: { "content-type": "application/json", ...headers },
      body,
    });
    const text = await reply.text();
    return { status: reply.status, headers: Object.fromEntries(reply.headers), text: () => text };
  };

const asHead = (endpoints: readonly Endpoint[]) =>
  endpoints.filter(({ method }) => method === "GET").map((each) => ({ ...each, method: "HEAD" }));

test("the tables of expected access have every route of the service, and none of the tests' custom routes", () => {
  const listed = new Set(CONTRACT.map(textOf));
  assert.deepEqual(
    ROUTES.map(textOf).filter((text) => !listed.has(text)),
    [],
  );
  const all = EVERY.map((each) => textOf(each).replace(/:[^/]+/g, ":"));
  assert.deepEqual(all, [...new Set(all)]);
});

for (const mode of MODES) {
  describe(titleOf(mode), () => {
    const start = (t: TestContext) => startSecured(t, mode, KEYS);

    test("every route, custom route and unknown path authorizes exactly the credentials that it should", async (t) => {
      const secured = await start(t);
      assert.deepEqual(await mistakes(injected(secured), mode, EVERY, credentials(secured.signer), isServed), []);
    });

    test("HEAD asks for what GET asks for", async (t) => {
      const secured = await start(t);
      const some = credentials(secured.signer).filter(({ name }) => !name.includes(":"));
      assert.deepEqual(await mistakes(injected(secured), mode, asHead(EVERY), some, isServed), []);
    });

    test("OPTIONS of a route is answered without credentials, and of what is none like any request", async (t) => {
      const { service } = await start(t);
      for (const endpoint of EVERY) {
        const path = targetOf(endpoint, { name: "", worth: "nothing" });
        const headers = { origin: "https://app.example", "access-control-request-method": endpoint.method };
        const { status } = await inject(service.dispatch, { method: "OPTIONS", path, headers });
        if (isServed(endpoint)) assert.equal(status, 204, path);
        else assert.ok([204, 401, 404].includes(status), `${path}: ${status}`);
      }
    });

    test("a custom route sees the user of the token that authorized the request, and no other", async (t) => {
      const { service, signer } = await start(t);
      for (const endpoint of CUSTOM_ROUTES) {
        const needs = needsOf(endpoint, mode);
        for (const credential of credentials(signer)) {
          if (!opens(credential.worth, needs, mode)) continue;
          const { method } = endpoint;
          const path = targetOf(endpoint, credential);
          const reply = await inject(service.dispatch, { method, path, headers: credential.headers });
          const { reached, user } = (reply.json() as Loose).data;
          assert.equal(reached, textOf(endpoint));
          const asked = needs === "user" || (needs === "either" && credential.worth === "user");
          const known = asked && (credential.worth === "user" || credential.worth === "both");
          const expected = known ? (credential.name === "token of another user" ? "bob" : "ada") : null;
          assert.equal(user, expected, `${reached} with ${credential.name}`);
        }
      }
    });
  });
}

test("without a provider and a key, nothing opens what is not public", async (t) => {
  for (const mode of ["authNext", "legacy"] as const) {
    const options: SecuredOptions = { mode, production: true, provider: "absent" };
    const secured = await startSecured(t, options, KEYS);
    const sent = credentials(secured.signer).map((credential) => ({ ...credential, worth: "nothing" as const }));
    const empty = {
      name: "an empty key",
      worth: "nothing",
      headers: { "x-console-access-key": "" },
      query: "?key=",
    } as const;
    assert.deepEqual(await mistakes(injected(secured), options, EVERY, [...sent, empty], isServed), []);
  }
});

const SOME = ["nothing", "key", "key in the query", "token", "token: expired", "token: alg none", "token and key"];

for (const transport of TRANSPORTS) {
  test(`over ${transport} the same are authorized, with bodies that arrive while the token is checked`, async (t) => {
    for (const mode of ["authNext", "legacy"] as const) {
      const options: SecuredOptions = { mode, production: true, provider: "jwks", transport };
      const secured = await startSecured(t, options, KEYS);
      const some = credentials(secured.signer).filter(({ name }) => SOME.includes(name));
      assert.equal(some.length, SOME.length);
      assert.deepEqual(await mistakes(fetched(secured), options, EVERY, some, isServed), []);
    }
  });
}
