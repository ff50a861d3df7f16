/** An example beside service.yaml: a custom route. service.yaml uses it. */
import { defineRoute } from "#plugin";

/** Days until a parcel arrives; a shop would query its carrier. */
const DAYS = new Map([
  ["berlin", 1],
  ["paris", 2],
  ["lisbon", 4],
]);

export default defineRoute({
  method: "GET",
  path: "/delivery/:city",
  summary: "Days until a parcel arrives in a city",
  handle: ({ params }) => ({ city: params.city, days: DAYS.get(params.city!.toLowerCase()) ?? 7 }),
});
