// Node's `spec` reporter, with the lines of the sources where a test failed in what sources.mjs has translated.
import { readFileSync } from "node:fs";
import module, { SourceMap } from "node:module";
import { pipeline } from "node:stream";
import { spec } from "node:test/reporters";
import { pathToFileURL } from "node:url";

const { PENSTOCK_TEST_LOADER: loader } = process.env;
const isTranslated = loader !== undefined && module.registerHooks === undefined;
/** The JavaScript with its map, by the URL of the source. */
const files = new Map(isTranslated ? JSON.parse(readFileSync(new URL("apart.json", loader), "utf8")) : []);
const maps = new Map();

function mapOf(url) {
  if (!files.has(url)) return undefined;
  if (!maps.has(url)) {
    const encoded = readFileSync(files.get(url), "utf8").split(";base64,").at(-1);
    maps.set(url, new SourceMap(JSON.parse(Buffer.from(encoded, "base64").toString())));
  }
  return maps.get(url);
}

function placeIn(url, line, column) {
  const { originalLine, originalColumn } = mapOf(url)?.findEntry(line - 1, column - 1) ?? {};
  return originalLine === undefined ? [line, column] : [originalLine + 1, originalColumn + 1];
}

const inSource = (stack) =>
  stack.replace(/(file:\/\/[^\s():]+):(\d+):(\d+)/g, (_, url, line, column) =>
    [url, ...placeIn(url, Number(line), Number(column))].join(":"),
  );

async function* mapped(events) {
  for await (const event of events) {
    const { data, type } = event;
    if (type === "test:fail") {
      const seen = new Set();
      for (let error = data.details.error; error instanceof Error && !seen.has(error); error = error.cause) {
        seen.add(error);
        // Node.js 24 gives errors whose stack cannot be assigned.
        if (typeof error.stack === "string") Reflect.defineProperty(error, "stack", { value: inSource(error.stack) });
      }
      if (data.file !== undefined)
        [data.line, data.column] = placeIn(pathToFileURL(data.file).href, data.line, data.column);
    }
    yield event;
  }
}

export default async function* report(events) {
  yield* pipeline(mapped(events), new spec(), () => undefined);
}
