/** The inventory of the service for its operators: its routes, the values of its manifest, its limits. */
import type { Service } from "../../app/service.ts";
import { typedRoute } from "../../http/route.ts";

export const INVENTORY_ROUTES = [
  typedRoute<Service>({
    operation: "inventory.routes",
    method: "GET",
    path: "/observability/routes",
    group: "observability",
    summary: "Routes and WebSockets with their access class, and how often each was used",
    pages: "named",
    output: { json: "RouteStates" },
    handle: (_input, { service }) => service.inventory.routes(),
  }),
  typedRoute<Service>({
    operation: "inventory.manifest",
    method: "GET",
    path: "/observability/manifest",
    group: "observability",
    summary: "The values of the manifest, and what each comes from",
    description:
      "Secrets, instructions of agents, and what comes from the environment are not among them. With `auth` only the console's key gives access.",
    pages: "named",
    output: { json: "ManifestValues" },
    handle: (_input, { service }) => service.inventory.manifest(),
  }),
  typedRoute<Service>({
    operation: "inventory.limits",
    method: "GET",
    path: "/observability/limits",
    group: "observability",
    summary: "The limits that the manifest sets, what is in use, and how often each has refused something",
    pages: "named",
    output: { json: "LimitStates" },
    handle: (_input, { service }) => service.inventory.limits(),
  }),
];
