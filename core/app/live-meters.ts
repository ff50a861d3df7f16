/** The metrics of what is open at the moment, and of lost log lines. */
import type { InFlight } from "../http/in-flight.ts";
import type { OpenSockets } from "../http/open-sockets.ts";
import type { LogOutput } from "../observability/log-output.ts";
import type { Meters } from "../observability/metrics/meters.ts";

export function addLiveMeters(meters: Meters, inFlight: InFlight, openSockets: OpenSockets, output: LogOutput): void {
  const add = (name: string, help: string, read: () => number, type: "gauge" | "counter" = "gauge") =>
    meters.add({ name, help, type, read });
  add("http_requests_in_flight", "Requests that wait for something, streams among them.", () => inFlight.size);
  add("http_streams_open", "Requests that are being answered with a stream.", () => inFlight.streams);
  add("sockets_open", "WebSockets that are open.", () => openSockets.size);
  const lost = "Lines of the log that could not be written to standard output.";
  add("log_lines_lost_total", lost, () => output.lost, "counter");
}
