import { test } from "node:test";
import { createUwsTransport } from "../../core/transport/uws.ts";
import { transportSuite } from "../suites/transport.suite.ts";
import { TRANSPORTS } from "../support/transports.ts";

if (TRANSPORTS.includes("uws")) transportSuite({ name: "uws", create: () => createUwsTransport() });
else test("transport uws", { skip: "uWebSockets.js does not load on this machine" });
