/** Contract, "Observability, logs, updates, discovery": updates, by the real npm from a real registry. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type NpmRegistry, npmProject, startRegistry } from "../support/npm-registry.ts";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const DEPENDENCIES = {
  dependencies: { tiny: "^1.0.0", "@scope/pinned": "1.0.0", current: "^3.0.0", local: "file:./local" },
  devDependencies: { other: "npm:renamed@0.1.0" },
};
const INSTALLED = { tiny: "1.0.0", "@scope/pinned": "1.0.0", current: "3.1.4", other: "0.1.0" };
const PACKAGES = () => ({
  tiny: ["1.0.0", "2.0.0"],
  "@scope/pinned": ["1.0.0", "1.2.0"],
  current: ["3.1.4"],
  renamed: ["0.1.0", "0.1.1"],
  broken: ["1.0.0"],
});

async function serve(
  t: TestContext,
  { install = true, auth = {}, packages = PACKAGES() as NpmRegistry["packages"] } = {},
) {
  const registry = await startRegistry(t, packages);
  const project = npmProject(t, registry.url, DEPENDENCIES, INSTALLED);
  const env = { ...project.env, SECRET_OF_THE_SERVICE: "hidden" };
  const options = { project: project.folder, env };
  const service = await startService(t, manifestWith({}, { updates: { install }, ...auth }), options);
  const read = (file: string) => JSON.parse(readFileSync(join(project.folder, file), "utf8"));
  return { service, registry, read };
}

test("GET /updates: what npm says is outdated, and which part of the version differs; who asks meanwhile gets the same", async (t) => {
  const { service, registry } = await serve(t, { install: false });
  const [first, second] = await Promise.all([dataOf(service.get("/updates")), dataOf(service.get("/updates"))]);
  assert.deepEqual(first, {
    hasUpdates: true,
    updates: [
      { name: "@scope/pinned", installed: "1.0.0", latest: "1.2.0", type: "minor", packageJson: "dependencies" },
      { name: "tiny", installed: "1.0.0", latest: "2.0.0", type: "major", packageJson: "dependencies" },
    ],
    count: 2,
    message: "2 packages can be updated",
  });
  assert.deepEqual(second, first);
  assert.equal(registry.asked.filter((name) => name === "tiny").length, 1, "npm ran once");

  for (const [path, body] of [
    ["/updates", {}],
    ["/updates", { packageName: "tiny" }],
    ["/updates/tiny", undefined],
  ] as const) {
    const answer = await errorOf(service.post(path, body ?? ""));
    assert.deepEqual(answer, {
      status: 400,
      error: "installing is switched off: set updates.install: true in the manifest",
    });
  }
});

test("GET /updates offers no version that is older than what is installed, and compares those before a release part by part", async (t) => {
  const versions = { tiny: "1.0.0", "@scope/pinned": "1.0.0", current: "3.1.4", renamed: "0.1.0" };
  const latest = { tiny: "0.9.9", "@scope/pinned": "1.0.0-beta.2", current: "3.1.10", renamed: "0.1.1" };
  const packages = Object.fromEntries(
    Object.entries(versions).map(([name, installed]) => [name, [installed, latest[name as keyof typeof latest]]]),
  );
  const { service } = await serve(t, { install: false, packages });
  const { updates } = await dataOf(service.get("/updates"));
  assert.deepEqual(
    updates.map(({ name, installed, latest }: Record<string, string>) => [name, installed, latest]),
    [["current", "3.1.4", "3.1.10"]],
  );
});

test("GET /updates answers with what npm said last while it asks again, and the answer after that is the new one", async (t) => {
  const { service, registry } = await serve(t, { install: false });
  const first = await dataOf(service.get("/updates"));
  let open = () => {};
  registry.gate = new Promise((resolve) => {
    open = resolve;
  });
  registry.packages = { ...PACKAGES(), tiny: ["1.0.0", "2.0.0", "2.0.1"] };
  // npm cannot end before the gate is open.
  assert.deepEqual(await dataOf(service.get("/updates")), first);
  open();
  const versionOf = ({ updates }: { updates: { name: string; latest: string }[] }) =>
    updates.find(({ name }) => name === "tiny")?.latest;
  while (versionOf(await dataOf(service.get("/updates"))) !== "2.0.1")
    await new Promise((resolve) => setTimeout(resolve, 50));
});

test("POST /updates/:packageName, POST /updates: one package at a time, then all; what was pinned stays pinned", async (t) => {
  const { service, registry, read } = await serve(t);
  let open = () => {};
  registry.gate = new Promise((resolve) => {
    open = resolve;
  });
  const scoped = dataOf(service.post(`/updates/${encodeURIComponent("@scope/pinned")}`, ""));
  while (registry.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(await errorOf(service.post("/updates/tiny", "")), {
    status: 409,
    error: "another installation is running",
  });
  open();
  assert.deepEqual(await scoped, {
    message: "installed 1 package: restart the service to use them",
    packages: [{ name: "@scope/pinned", from: "1.0.0", to: "1.2.0" }],
  });
  assert.equal(read("package.json").dependencies["@scope/pinned"], "1.2.0");
  assert.equal(read("node_modules/@scope/pinned/package.json").version, "1.2.0");

  const all = await dataOf(service.post("/updates", {}));
  assert.deepEqual(all.packages, [{ name: "tiny", from: "1.0.0", to: "2.0.0" }]);
  const { dependencies, devDependencies } = read("package.json");
  assert.equal(dependencies.tiny, "^2.0.0");
  assert.equal(devDependencies.other, "npm:renamed@0.1.0");
  const { hasUpdates, message } = await dataOf(service.get("/updates"));
  assert.deepEqual([hasUpdates, message], [false, "all packages are up to date"]);
  assert.deepEqual((await dataOf(service.post("/updates", ""))).packages, []);
});

test("POST /updates: only what package.json names and the registry has; a failure is told, and is none of the client's business beyond its code", async (t) => {
  const { service, registry } = await serve(t);
  const NAMES: [name: string, error: RegExp][] = [
    ["left-pad", /must be a package that package\.json names, not "left-pad"/],
    ["--prefix=/", /must be a package that package\.json names/],
    ["-g", /must be a package that package\.json names/],
    ["tiny@1.0.0", /must be a package that package\.json names/],
    ["../tiny", /must be a package that package\.json names/],
    ["__proto__", /must be a package that package\.json names/],
    ["local", /"local" does not come from the registry: update it by hand/],
  ];
  for (const [packageName, error] of NAMES) {
    for (const reply of [
      service.post("/updates", { packageName }),
      service.post(`/updates/${encodeURIComponent(packageName)}`, ""),
    ]) {
      const answer = await errorOf(reply);
      assert.equal(answer.status, 400, packageName);
      assert.match(answer.error, error);
    }
  }
  assert.equal((await errorOf(service.post("/updates", { packageName: 7 }))).error, "packageName must be string");
  assert.deepEqual(registry.asked, []);

  delete registry.packages.tiny;
  const failed = await errorOf(service.post("/updates/tiny", ""));
  assert.deepEqual(failed, { status: 500, error: "npm install failed: E404; the log says more" });
  const line = service.log.find(({ msg }) => msg === "npm install failed");
  assert.match(String(line?.summary), /Not Found/);
});

test("POST /updates, POST /setup-observability: a page of a foreign origin gets nothing done", async (t) => {
  const { service, registry } = await serve(t, { auth: { server: { cors: { origin: "https://desk.example" } } } });
  const foreign = { origin: "https://evil.example" };
  const keys = { publicKey: "pk", secretKey: "sk" };
  for (const [path, body] of [
    ["/updates", {}],
    ["/updates/tiny", ""],
    ["/setup-observability", keys],
  ] as const)
    assert.equal((await errorOf(service.post(path, body, foreign))).status, 403, path);
  assert.deepEqual(registry.asked, []);
});
