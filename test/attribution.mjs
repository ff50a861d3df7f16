// Node.js 20 knows which test an uncaught error belongs to by following every promise of a process until it is collected, which takes a
// tenth of all processor time of the tests. This has the same answers from a mark on what a test makes.
import asyncHooks from "node:async_hooks";

const { createHook, executionAsyncId, executionAsyncResource } = asyncHooks;
const TEST = Symbol("test");

/** Stands in for `createHook` until the test runner has asked for its hook. */
function createLighterHook(callbacks) {
  asyncHooks.createHook = createHook;
  /** `id` is the test's, or something's that it has made. */
  const remember = (id, test) => callbacks.init(id, "Test", 0, test);
  const attribute = () => {
    const test = executionAsyncResource()[TEST];
    if (test !== undefined) remember(executionAsyncId(), test);
  };
  // Before the runner's own listeners, which ask for what is remembered.
  process.on("uncaughtException", attribute).on("unhandledRejection", attribute);
  return createHook({
    init(id, type, _trigger, resource) {
      const test = type === "Test" ? resource : executionAsyncResource()[TEST];
      if (test === undefined) return;
      resource[TEST] = test;
      // Tests that a suite declares are looked up, also after it has awaited something.
      if (test === resource || test.constructor.name === "Suite") remember(id, test);
    },
  });
}

asyncHooks.createHook = createLighterHook;
