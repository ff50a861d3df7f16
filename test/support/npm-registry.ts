/** A registry of npm packages on the loopback: packages without code, made when they are asked for. */
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { TestContext } from "node:test";
import { gzipSync } from "node:zlib";

export interface NpmRegistry {
  readonly url: string;
  /** Names and versions that it has, the newest last. */
  packages: Record<string, string[]>;
  /** Names that were asked for. */
  readonly asked: string[];
  /** Waited for before each answer. */
  gate: Promise<void>;
}

export async function startRegistry(test: Pick<TestContext, "after">, packages: Record<string, string[]>) {
  const registry = { url: "", packages, asked: [] as string[], gate: Promise.resolve() };
  const server = createServer(async ({ url = "" }, reply) => {
    const path = decodeURIComponent(url.slice(1));
    const [name = "", version] = path.split("/-/");
    if (version === undefined) registry.asked.push(name);
    await registry.gate;
    const versions = Object.hasOwn(registry.packages, name) ? registry.packages[name]! : null;
    if (versions === null) reply.writeHead(404, { "content-type": "application/json" }).end('{"error":"not found"}');
    else if (version !== undefined) reply.end(tarball(name, version.replace(/\.tgz$/, "")));
    else
      reply.setHeader("content-type", "application/json").end(JSON.stringify(packument(registry.url, name, versions)));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  registry.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return registry satisfies NpmRegistry;
}

function packument(url: string, name: string, versions: readonly string[]) {
  const entries = versions.map((version) => {
    const integrity = `sha512-${createHash("sha512").update(tarball(name, version)).digest("base64")}`;
    return [version, { name, version, dist: { tarball: `${url}/${name}/-/${version}.tgz`, integrity } }];
  });
  return { name, "dist-tags": { latest: versions.at(-1) }, versions: Object.fromEntries(entries) };
}

/** One file, in the form of POSIX (ustar). */
function tarball(name: string, version: string): Buffer {
  const content = Buffer.from(JSON.stringify({ name, version }));
  const head = Buffer.alloc(512);
  head.write("package/package.json");
  for (const [value, at] of [
    ["0000644\0", 100],
    ["0000000\0", 108],
    ["0000000\0", 116],
  ] as const)
    head.write(value, at);
  head.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  head.write("00000000000\0        0", 136);
  head.write("ustar\x0000", 257);
  const sum = head.reduce((total, byte) => total + byte, 0);
  head.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc(512 - (content.length % 512) + 1024);
  return gzipSync(Buffer.concat([head, content, padding]));
}

interface Project {
  readonly folder: string;
  /** What npm is run with. */
  readonly env: Record<string, string | undefined>;
}

/** A folder with a package.json, and with packages installed in it. */
export function npmProject(
  test: Pick<TestContext, "after">,
  registry: string,
  manifest: object,
  installed: Record<string, string>,
): Project {
  const folder = mkdtempSync(join(tmpdir(), "penstock-npm-"));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({ name: "project", version: "1.0.0", ...manifest }, null, 2),
  );
  for (const [name, version] of Object.entries(installed)) {
    mkdirSync(join(folder, "node_modules", name), { recursive: true });
    writeFileSync(join(folder, "node_modules", name, "package.json"), JSON.stringify({ name, version }));
  }
  const env = {
    ...process.env,
    npm_execpath: undefined,
    npm_config_registry: registry,
    npm_config_cache: join(folder, ".cache"),
    npm_config_update_notifier: "false",
    npm_config_fetch_retries: "0",
  };
  return { folder, env };
}

/** One that is up to date whenever it is looked at, without a registry: its npm says so at once. */
export function settledProject(test: Pick<TestContext, "after">): Project {
  const { folder } = npmProject(test, "", { dependencies: { tiny: "1.0.0" } }, { tiny: "1.0.0" });
  writeFileSync(join(folder, "npm"), "#!/bin/sh\necho '{}'\n", { mode: 0o755 });
  return { folder, env: { ...process.env, npm_execpath: undefined, PATH: `${folder}${delimiter}${process.env.PATH}` } };
}
