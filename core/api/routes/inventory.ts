/** The inventory of the service for its operators: its routes, the values of its manifest, its limits. */
import { get } from "./row.ts";

export const INVENTORY_ROUTES = [
  get(
    "/observability/routes",
    "inventory.routes",
    "Routes and WebSockets with their access class, and how often each was used",
    {
      group: "observability",
      pages: "named",
      output: "RouteStates",
      handle: (_input, { service }) => service.inventory.routes(),
    },
  ),
  get("/observability/manifest", "inventory.manifest", "The values of the manifest, and what each comes from", {
    group: "observability",
    description:
      "Secrets, instructions of agents, and what comes from the environment are not among them. With `auth` only the console's key gives access.",
    pages: "named",
    output: "ManifestValues",
    handle: (_input, { service }) => service.inventory.manifest(),
  }),
  get(
    "/observability/limits",
    "inventory.limits",
    "The limits that the manifest sets, what is in use, and how often each has refused something",
    {
      group: "observability",
      pages: "named",
      output: "LimitStates",
      handle: (_input, { service }) => service.inventory.limits(),
    },
  ),
];
