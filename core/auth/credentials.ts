/** What a request carries to be let in by (contract, "Credentials"), read from its head. */
import { hash, timingSafeEqual } from "node:crypto";
import { parseQuery } from "../http/decode.ts";
import type { Exchange } from "../http/exchange.ts";
import type { TokenRequest } from "./provider-port.ts";

/** The environment variable with the console's key. */
export const CONSOLE_KEY = "SERVICE_CONSOLE_ACCESS_KEY";

/** Keys that the environment holds beside those that the manifest names. */
export const keysIn = (env: Readonly<Record<string, string | undefined>>): string[] =>
  [env[CONSOLE_KEY], env.SERVICE_SECRET_KEY].filter((key) => key !== undefined);

/** What of a request is looked at. */
export type Head = Pick<Exchange, "method" | "path" | "query" | "header" | "headers">;

export interface Credentials {
  /** Whether the bypass of development counts: anywhere but in production. */
  readonly development: boolean;
  readonly consoleKey: boolean;
  isDevelopment(head: Pick<Head, "header">): boolean;
  /** Whether the header or the query carries the console's key. */
  isConsole(head: Pick<Head, "header" | "query">): boolean;
}

type Environment = Readonly<Record<string, string | undefined>>;

export const isDevelopment = (env: Environment): boolean => env.NODE_ENV !== "production";

export function compileCredentials(env: Environment): Credentials {
  const development = isDevelopment(env);
  const key = env[CONSOLE_KEY] ?? "";
  const expected = key === "" ? null : digestOf(key);
  return {
    development,
    consoleKey: expected !== null,
    isDevelopment: (head) => development && head.header("x-service-dev") === "true",
    isConsole(head) {
      if (expected === null) return false;
      const sent = head.header("x-console-access-key");
      if (sent !== "" && timingSafeEqual(digestOf(sent), expected)) return true;
      const { query } = head;
      if (!query.includes("key=")) return false;
      const given = parseQuery(query).key;
      return typeof given === "string" && timingSafeEqual(digestOf(given), expected);
    },
  };
}

/** Texts of any length become comparable in constant time. */
const digestOf = (text: string): Buffer => hash("sha256", text, "buffer");

/** The token of the `Authorization` header; null where there is none. */
export function bearerOf(head: Pick<Head, "header">): string | null {
  return /^bearer +([^\s,]+)$/i.exec(head.header("authorization"))?.[1] ?? null;
}

/** A copy for the provider. */
export const tokenRequest = (head: Head): TokenRequest => ({
  method: head.method,
  path: head.path,
  headers: head.headers(),
  query: parseQuery(head.query) as Record<string, string>,
});
