/** `penstock init --from openapi FILE`: the operations of a document as tools, called against a real server on the loopback. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { parse, stringify } from "yaml";
import { toolsOfOpenApi } from "../../core/init/openapi.ts";
import { manifestWith, startService } from "../support/service.ts";

const DOCUMENT = `
openapi: 3.0.3
info: { title: Pets, version: 1.0.0 }
servers: [{ url: "http://127.0.0.1:{port}/v2/", variables: { port: { default: "PORT" } } }]
security: [{ bearerAuth: [] }]
paths:
  /pets/{petId}:
    parameters: [{ $ref: "#/components/parameters/PetId" }]
    get:
      operationId: getPetById
      summary: "One pet, not \${HOME}"
      parameters: [{ name: in, in: query, schema: { type: array, items: { type: string } } }]
    put:
      parameters: [{ name: X-Trace, in: header, required: true, schema: { type: string } }]
      requestBody: { required: true, content: { application/json: { schema: { $ref: "#/components/schemas/Pet" } } } }
  /pets:
    post: { operationId: getPetById, security: [{ key: [] }], requestBody: { content: { application/vnd.pet+json: {} } } }
    options: { operationId: what }
  /files:
    post: { requestBody: { content: { multipart/form-data: {} } } }
  /tree:
    post: { requestBody: { content: { application/json: { schema: { $ref: "#/components/schemas/Tree" } } } } }
  /me:
    get: { security: [{ session: [] }] }
  /search:
    get: { parameters: [{ name: filter, in: query, style: deepObject, schema: { type: object } }] }
    head: { parameters: [{ $ref: "other.yaml#/x" }] }
  /lost/{id}:
    get: { summary: Its parameter is described nowhere }
components:
  parameters: { PetId: { name: petId, in: path, required: true, schema: { type: integer, format: int64 } } }
  securitySchemes:
    bearerAuth: { type: http, scheme: bearer }
    session: { type: apiKey, in: cookie, name: sid }
    key: { type: apiKey, in: query, name: api_key }
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        id: { type: integer, readOnly: true }
        name: { type: string, nullable: true, example: Rex }
        age: { type: number, minimum: 0, exclusiveMinimum: true }
    Tree: { type: object, properties: { children: { type: array, items: { $ref: "#/components/schemas/Tree" } } } }
`;

test("penstock init --from openapi: operations become tools that send what the document says, and the others are named with why", async (t) => {
  const seen: { line: string; headers: Record<string, unknown>; body: string }[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    seen.push({ line: `${request.method} ${request.url}`, headers: request.headers, body });
    response.writeHead(200, { "content-type": "application/json" }).end('{"name":"Rex"}');
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const { tools, variables, unmapped } = toolsOfOpenApi(parse(DOCUMENT.replace('"PORT"', `"${port}"`)));

  assert.deepEqual(unmapped, [
    "OPTIONS /pets: the method OPTIONS is none of a tool",
    "POST /files: its body is multipart/form-data: tools send JSON",
    "POST /tree: a schema of it refers to itself, or is very deep",
    'GET /me: its credentials "session" (apiKey cookie) are none that a tool sends',
    'GET /search: the parameter "filter" is an object',
    "HEAD /search: other.yaml#/x is in another file: bundle the document first",
    "GET /lost/{id}: its path has a parameter that is not described",
  ]);
  assert.deepEqual(Object.keys(variables), ["API_URL", "API_BEARER_AUTH", "API_KEY"]);
  assert.deepEqual(Object.keys(tools), ["get_pet_by_id", "put_pets_pet_id", "get_pet_by_id_2"]);
  const { parameters } = tools.put_pets_pet_id as { parameters: { properties: { body: object } } };
  assert.deepEqual(parameters.properties.body, {
    type: "object",
    required: ["name"],
    properties: { name: { type: ["string", "null"] }, age: { type: "number", exclusiveMinimum: 0 } },
  });

  // As it is written to a file and read again.
  const service = await startService(t, manifestWith({}, parse(stringify({ tools }))), {
    env: { API_BEARER_AUTH: "t0ken", API_KEY: "k" },
  });
  const call = async (name: string, input: object) => {
    const reply = await service.post(`/tools/${name}/execute`, { input });
    assert.equal(reply.status, 200, JSON.stringify(reply));
  };
  await call("get_pet_by_id", { petId: 7, query_in: ["a", "b c"] });
  await call("get_pet_by_id", { petId: 8 });
  await call("put_pets_pet_id", { petId: 7, X_Trace: "x1", body: { name: null } });
  await call("get_pet_by_id_2", {});
  assert.deepEqual(
    seen.map(({ line, headers, body }) => [line, headers.authorization, headers["x-trace"], body]),
    [
      ["GET /v2/pets/7?in=a&in=b%20c", "Bearer t0ken", undefined, ""],
      ["GET /v2/pets/8", "Bearer t0ken", undefined, ""],
      ["PUT /v2/pets/7", "Bearer t0ken", "x1", '{"name":null}'],
      ["POST /v2/pets?api_key=k", undefined, undefined, ""],
    ],
  );
  const refused = await service.post("/tools/get_pet_by_id/execute", { input: { petId: "seven" } });
  assert.equal(refused.status, 400);
});

test("penstock init --from openapi: a document of another kind is refused with what it must be", () => {
  assert.throws(() => toolsOfOpenApi({ swagger: "2.0", paths: {} }), /its "openapi" must be 3\.0 or 3\.1/);
  assert.throws(() => toolsOfOpenApi({ openapi: "3.1.0" }), /"paths" must be an object/);
});
