import type { Logger } from "pino";
import { ServiceError } from "../lib/errors.ts";
import type { Uses } from "../lib/uses.ts";
import type { CountRefusal } from "../observability/metrics/limit-meters.ts";
import type { Tracer } from "../observability/tracer.ts";
import type { ClientOf } from "./client.ts";
import type { HeaderList } from "./exchange.ts";
import type { InFlight } from "./in-flight.ts";

/** The settings and services that all calls of a pipeline share. */
export interface CallSettings<S> {
  readonly service: S;
  readonly logger: Logger;
  readonly inFlight: InFlight;
  /** Counts the requests that use these settings and this service; undefined when nothing needs the count. */
  readonly uses?: Uses;
  /** Undefined or null when tracing is off. */
  readonly tracer?: Tracer | null;
  /**
   * `request`: milliseconds until the headers of the reply must be sent. `heartbeat`: milliseconds of silence in a stream.
   * `streamBuffer`: bytes that may wait for a slow reader.
   */
  readonly limits: { request: number; heartbeat: number; streamBuffer: number };
  /** Called for each request that exceeds its time limit. */
  readonly refused?: CountRefusal;
  readonly clientOf: ClientOf;
  /** Whether each request is logged with one line. */
  readonly logs: boolean;
}

/** The headers of a stream are sent after this time even if the model has not accepted the call yet. */
export const STREAM_OPEN_TIMEOUT_MS = 5_000;

export const TOKEN_EXPIRED = new ServiceError("unauthorized", "the token has expired: send a new one");
export const NO_HEADERS: Record<string, string> = Object.freeze(Object.create(null));
export const NO_WARNINGS: HeaderList = [];
