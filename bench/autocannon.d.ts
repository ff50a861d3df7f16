/** The part of autocannon that the bench uses; the package has no types. */
declare module "autocannon" {
  export interface AutocannonRequest {
    path: string;
    body?: string;
    headers?: Record<string, string>;
  }
  interface Options {
    url: string;
    connections: number;
    duration: number;
    method?: string;
    headers?: Record<string, string>;
    body?: string;
    requests?: {
      setupRequest?(request: AutocannonRequest, context: { id?: string }): AutocannonRequest;
      onResponse?(status: number, body: string, context: { id?: string }): void;
    }[];
    verifyBody?(body: string): boolean;
  }
  interface Result {
    "2xx": number;
    non2xx: number;
    errors: number;
    timeouts: number;
    mismatches: number;
    /** In seconds. */
    duration: number;
    /** In milliseconds. */
    latency: { p50: number; p99: number };
  }
  export default function autocannon(options: Options): PromiseLike<Result>;
}
