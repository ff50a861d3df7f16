/** Describes the access class of a route: for the OpenAPI document and for the list of routes. */
import type { DocumentSecurity } from "../http/openapi.ts";
import type { AccessClass, AccessRules, RouteAccess } from "./classes.ts";

const SCHEMES = {
  userToken: { type: "http", scheme: "bearer", description: "The token of a user." },
  consoleKey: {
    type: "apiKey",
    in: "header",
    name: "x-console-access-key",
    description: "The key of the console.",
  },
  consoleKeyInQuery: {
    type: "apiKey",
    in: "query",
    name: "key",
    description: "The key of the console, for clients that cannot send headers.",
  },
};

type Requirement = Record<string, readonly string[]>;

const WITH_TOKEN: readonly Requirement[] = [{ userToken: [] }];
const WITH_KEY: readonly Requirement[] = [{ consoleKey: [] }, { consoleKeyInQuery: [] }];
/** In OpenAPI an empty requirement beside others means that credentials are optional. */
const WITHOUT_CREDENTIALS: readonly Requirement[] = [{}];

const REQUIRED: Record<AccessClass, readonly Requirement[]> = {
  public: WITHOUT_CREDENTIALS,
  user: WITH_TOKEN,
  console: WITH_KEY,
  operator: [...WITH_TOKEN, ...WITH_KEY],
};

/** Undefined when everything is public. */
export function documentSecurity(access: AccessRules): DocumentSecurity | undefined {
  if (access.mode === "none") return undefined;
  return {
    schemes: SCHEMES,
    of(route) {
      const { exceptions, otherwise } = access.of(route);
      const classes = new Set([otherwise, ...exceptions.map((exception) => exception.access)]);
      if (classes.size === 1 && classes.has("public")) return [];
      return [...new Set([...classes].flatMap((each) => REQUIRED[each]))];
    },
  };
}

const CLASS_NAMES: Record<AccessClass, string> = {
  public: "public",
  user: "user",
  console: "console",
  operator: "console or user",
};

/** `user`, or `user; public: POST /agents/support/text` when a pattern matches only some paths of the route. */
export function describeAccess({ exceptions, otherwise }: RouteAccess): string {
  return [
    CLASS_NAMES[otherwise],
    ...exceptions.map(({ pattern, access }) => `${CLASS_NAMES[access]}: ${pattern}`),
  ].join("; ");
}
