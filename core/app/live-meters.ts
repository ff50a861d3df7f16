/** The metrics of what is open at the moment, and of lost log lines. */
import type { InFlight } from "../http/in-flight.ts";
import type { OpenSockets } from "../http/open-sockets.ts";
import type { LogOutput } from "../observability/log-output.ts";
import type { Meters } from "../observability/metrics/meters.ts";

export function addLiveMeters(meters: Meters, inFlight: InFlight, openSockets: OpenSockets, output: LogOutput): void {
  meters.add({
    name: "http_requests_in_flight",
    help: "Requests that wait for something, streams among them.",
    type: "gauge",
    read: () => inFlight.size,
  });
  meters.add({
    name: "http_streams_open",
    help: "Requests that are being answered with a stream.",
    type: "gauge",
    read: () => inFlight.streams,
  });
  meters.add({
    name: "sockets_open",
    help: "WebSockets that are open.",
    type: "gauge",
    read: () => openSockets.size,
  });
  meters.add({
    name: "log_lines_lost_total",
    help: "Lines of the log that could not be written to standard output.",
    type: "counter",
    read: () => output.lost,
  });
}
