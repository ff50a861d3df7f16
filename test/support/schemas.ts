/** The schemas of bodies and events, and those of the manifest. */
import { readDefinitions } from "../../core/manifest/definitions.ts";

export const schemas = readDefinitions(["api", "events"], "#/components/schemas/");
export const manifestSchemas = readDefinitions(["manifest"], "#/$defs/");
