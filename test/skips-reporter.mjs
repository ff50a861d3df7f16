/** A reporter of Node's test runner: one line of JSON for each test that was skipped, and for each that ran. */
export default async function* report(events) {
  /** The titles of the suites around the test that is reported. */
  const around = [];
  for await (const { type, data } of events) {
    if (type === "test:start") around[data.nesting] = data.name;
    if (type !== "test:pass" && type !== "test:fail") continue;
    const title = [...around.slice(0, data.nesting), data.name].join(" > ");
    const { skip = false } = data;
    yield `${JSON.stringify({ title, skipped: skip !== false, said: String(skip) })}\n`;
  }
}
