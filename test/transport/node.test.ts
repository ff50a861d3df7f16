import { createNodeTransport } from "../../core/transport/node.ts";
import { transportSuite } from "../suites/transport.suite.ts";

transportSuite({
  name: "node",
  create: (timeout) =>
    createNodeTransport(
      timeout === undefined ? {} : { headTimeout: timeout, requestTimeout: timeout, pingEvery: timeout },
    ),
});
