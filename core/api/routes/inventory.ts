/** The inventory of the service for its operators: its routes, the values of its manifest, its limits. */
import type { Schemas } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import { observe } from "./row.ts";

const inventory = (part: keyof Service["inventory"], output: keyof Schemas, summary: string, description?: string) =>
  observe(`/observability/${part}`, `inventory.${part}`, summary, {
    ...(description !== undefined && { description }),
    pages: "named",
    output,
    handle: (_input, { service }) => service.inventory[part](),
  });

export const INVENTORY_ROUTES = [
  inventory("routes", "RouteStates", "Routes and WebSockets with their access class, and how often each was used"),
  inventory(
    "manifest",
    "ManifestValues",
    "The values of the manifest, and what each comes from",
    "Secrets, instructions of agents, and what comes from the environment are not among them. With `auth` only the console's key gives access.",
  ),
  inventory(
    "limits",
    "LimitStates",
    "The limits that the manifest sets, what is in use, and how often each has refused something",
  ),
];
