/**
 * What every network transport must do, over raw sockets. The transport over uWebSockets.js, whose parser is not ours, is also held to
 * the list of its known faults (`KNOWN_OF_UWS`), so that the tests tell when a fault is fixed.
 */
import { describe } from "node:test";
import { hostileSuite } from "./transport-hostile.ts";
import { knownSuite } from "./transport-known.ts";
import { lifecycleSuite } from "./transport-lifecycle.ts";
import { pipelineSuite } from "./transport-pipelining.ts";
import { replySuite } from "./transport-replies.ts";
import type { Subject } from "./transport-rig.ts";
import { slowSuite } from "./transport-slow.ts";
import { socketSuite } from "./transport-sockets.ts";
import { streamSuite } from "./transport-streams.ts";

export function transportSuite(subject: Subject): void {
  describe(`transport ${subject.name}: replies`, () => replySuite(subject));
  describe(`transport ${subject.name}: streams`, () => streamSuite(subject));
  describe(`transport ${subject.name}: pipelining`, () => pipelineSuite(subject));
  describe(`transport ${subject.name}: hostile requests`, () => hostileSuite(subject));
  // At once, because they do nothing but wait.
  describe(`transport ${subject.name}: slow clients`, { concurrency: 3 }, () => slowSuite(subject));
  describe(`transport ${subject.name}: lifecycle`, () => lifecycleSuite(subject));
  describe(`transport ${subject.name}: sockets`, () => socketSuite(subject));
  describe(`transport ${subject.name}: known failures`, () => knownSuite(subject));
}
