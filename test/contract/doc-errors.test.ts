/** `GET /doc` describes the errors of every route as they are: each documented operation is asked wrongly, and its reply is checked. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { ROUTES } from "../../core/api/routes/index.ts";
import { openapiDocument } from "../../core/http/openapi.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { SECRET } from "../support/tokens.ts";

const BODY_LIMIT = 2048;
const METHODS = ["get", "post", "put", "patch", "delete"];

interface Operation {
  method: string;
  path: string;
  takesBody: boolean;
}

/** A document and its operations. */
async function documentOf(service: TestService, headers: Record<string, string> = {}) {
  const document = (await (await service.get("/doc", headers)).json()) as Loose;
  const operations: Operation[] = Object.entries<Loose>(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method] !== undefined).map((method) => ({
      method,
      path,
      takesBody: item[method].requestBody !== undefined,
    })),
  );
  assert.ok(operations.length >= 90, `${operations.length} operations are documented`);
  return { document, operations };
}

/** Why an error is not described as it is; null where it is, and for what is no error. */
function checker(document: Loose) {
  const ajv = new Ajv2020({ strict: false });
  (formats as unknown as (ajv: Ajv2020) => void)(ajv);
  ajv.addSchema({ ...document, $id: "doc" });
  const compiled = new Map<string, ValidateFunction>();
  const escaped = (key: string) => encodeURIComponent(key.replaceAll("~", "~0").replaceAll("/", "~1"));
  return async ({ method, path }: Operation, what: string, reply: Response): Promise<string[]> => {
    const { status } = reply;
    const text = await reply.text();
    if (status < 400) return [];
    const about = `${method.toUpperCase()} ${path}, ${what}: ${status}`;
    let place = ["paths", path, method, "responses", String(status)];
    let described = document.paths[path][method].responses[status];
    if (described === undefined) return [`${about} is not described: ${text.slice(0, 100)}`];
    if (described.$ref !== undefined) {
      place = described.$ref.slice(2).split("/");
      described = document.components.responses[place.at(-1)!];
    }
    const type = reply.headers.get("content-type")?.split(";")[0] ?? "";
    if (described.content?.[type] === undefined) return [`${about} is not described as ${type}`];
    const pointer = [...place, "content", type, "schema"].map(escaped).join("/");
    const fits = compiled.get(pointer) ?? ajv.compile({ $ref: `doc#/${pointer}` });
    compiled.set(pointer, fits);
    return fits(JSON.parse(text)) ? [] : [`${about} is described otherwise: ${text.slice(0, 200)}`];
  };
}

const filled = (path: string) => path.replace(/\{[^}]+\}/g, "nobody-has-this-id");

test("GET /doc: what every operation answers to bodies of another type, malformed and too large ones, to unknown ids, and at /mcp to an Accept without its types is described", async (t) => {
  const server = { limits: { body: BODY_LIMIT } };
  const mcp = { servers: { main: { agents: ["assistant"] } } };
  const service = await startService(t, manifestWith({}, { server, mcp, auth: { mode: "none" } }));
  const { document, operations } = await documentOf(service);
  const problems = checker(document);
  const known = (path: string) =>
    path.replace(/^(\/(?:agents|a2a|ag-ui))\/\{id\}/, "$1/assistant").replace("{serverId}", "main");
  const found: string[] = [];
  for (const operation of operations) {
    const { method, path, takesBody } = operation;
    const send = (to: string, body?: string, type = "application/json", more: Record<string, string> = {}) =>
      fetch(service.url + to, {
        method: method.toUpperCase(),
        headers: { "content-type": type, ...more },
        ...(body && { body }),
      });
    if (takesBody) {
      for (const to of new Set([filled(path), filled(known(path))])) {
        found.push(
          ...(await problems(operation, "another type", await send(to, "a=b", "application/x-www-form-urlencoded"))),
        );
        found.push(...(await problems(operation, "malformed", await send(to, "{"))));
        found.push(...(await problems(operation, "no object", await send(to, "[7]"))));
        found.push(...(await problems(operation, "too large", await send(to, `{"a":"${"x".repeat(BODY_LIMIT)}"}`))));
      }
    }
    // What is known there must not be carried out: packages are not installed, nor is anything read anew.
    const isDone = method !== "get" && !path.includes("{");
    if (isDone || path.startsWith("/updates")) continue;
    found.push(...(await problems(operation, "an unknown id", await send(filled(path), takesBody ? "{}" : undefined))));
    if (path.startsWith("/mcp/{serverId}/mcp")) {
      const to = filled(known(path));
      found.push(...(await problems(operation, "a known server", await send(to, takesBody ? "{}" : undefined))));
      if (!takesBody) continue;
      for (const message of [{ method: "tools/list" }, { method: "subscriptions/listen", params: {} }]) {
        const body = JSON.stringify({ jsonrpc: "2.0", id: 1, ...message });
        const reply = await send(to, body, "application/json", { accept: "text/html" });
        assert.equal(reply.status, 406, message.method);
        found.push(...(await problems(operation, `${message.method} for text/html`, reply)));
      }
    }
  }
  assert.deepEqual(found, []);
});

test("GET /doc: what every operation answers without credentials is described", async (t) => {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const env = { ...process.env, SERVICE_CONSOLE_ACCESS_KEY: "a-console-key" };
  const service = await startService(t, manifestWith({}, { auth }), { env });
  const { document, operations } = await documentOf(service, { "x-console-access-key": "a-console-key" });
  const problems = checker(document);
  const found: string[] = [];
  let refused = 0;
  for (const operation of operations) {
    const method = operation.method.toUpperCase();
    const reply = await fetch(service.url + filled(operation.path), {
      method,
      ...(operation.takesBody && { body: "{}" }),
    });
    if (reply.status === 401) refused++;
    found.push(...(await problems(operation, "no credentials", reply)));
  }
  assert.deepEqual(found, []);
  assert.ok(refused > 80, `${refused} operations want credentials`);
});

test("GET /doc: every array says what is in it", () => {
  const found: string[] = [];
  const visit = (value: unknown, place: string): void => {
    if (typeof value !== "object" || value === null) return;
    const { type, items, prefixItems } = value as Loose;
    if ([type].flat().includes("array") && (items ?? prefixItems) === undefined) found.push(place);
    for (const [key, inner] of Object.entries(value)) if (!key.startsWith("example")) visit(inner, `${place}/${key}`);
  };
  visit(openapiDocument(ROUTES, { title: "Desk", version: "1.0.0" }), "");
  assert.deepEqual(found, []);
});
