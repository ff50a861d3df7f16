/** An example beside service.yaml: allows CORS requests from every subdomain of example.com. service.yaml does not use it. */
import { defineOrigin } from "#plugin";

/** Every tenant has a subdomain. */
export default defineOrigin({
  origin: (origin) => (origin.startsWith("https://") && origin.endsWith(".example.com") ? origin : undefined),
});
