/** An example beside service.yaml: a custom route. service.yaml uses it. */
import { defineRoute } from "#plugin";

export default defineRoute({
  method: "GET",
  path: "/hello",
  summary: "Says hello",
  query: { type: "object", properties: { name: { type: "string", maxLength: 100 } } },
  response: { type: "object", properties: { hello: { type: "string" } }, required: ["hello"] },
  handle: ({ query }) => ({ hello: query.name ?? "world" }),
});
