/** The Dockerfile and docs/deploy/: what can run here runs, the rest is read and held against what the service needs. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parse, parseAllDocuments } from "yaml";
import { build } from "../../core/codegen/build.ts";
import { parseManifest } from "../../core/manifest/load.ts";
import { ROOT, run, serve } from "../support/command-line.ts";
import { programMissing } from "../support/programs.ts";
import type { Loose } from "../support/served-upstream.ts";

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");

/** Seconds of `45s`. */
const seconds = (text: string) => Number(/^(\d+)s$/.exec(text)?.[1]);
const VARIABLES = {
  DATABASE_URL: "postgres://u:p@postgres/d",
  JWT_SECRET: "s".repeat(32),
  SERVICE_CONSOLE_ACCESS_KEY: "k".repeat(32),
};
const { manifest: EXAMPLE, issues: ISSUES } = parseManifest(read("docs/deploy/service.yaml"), {
  file: join(ROOT, "docs/deploy/service.yaml"),
  env: VARIABLES,
});
const DRAIN_S = (EXAMPLE?.server.limits.drain ?? 0) / 1_000;

function emptyFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "penstock-deploy-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("Dockerfile: what its last stage copies is enough, and its command serves the shipped manifest", async (t) => {
  const [, last = ""] = read("Dockerfile").split(/^FROM (?!.* AS )/m);
  const instruction = (name: string) => [...last.matchAll(new RegExp(`^${name} (.*)$`, "gm"))].map(([, rest]) => rest!);
  assert.deepEqual(
    [instruction("USER"), instruction("STOPSIGNAL"), instruction("WORKDIR")],
    [["node"], ["SIGTERM"], ["/app"]],
  );
  assert.match(last, /^HEALTHCHECK .*\/readyz/m);

  const folder = emptyFolder(t);
  const [source, app] = [join(folder, "src"), join(folder, "app")];
  await build({ out: join(source, "dist") });
  symlinkSync(join(ROOT, "node_modules"), join(source, "node_modules"));
  assert.match(read("Dockerfile"), /^RUN npm run build && node dist\/penstock\.js build \/app && mkdir \/app\/data$/m);
  const made = await run(process.execPath, [join(source, "dist/penstock.js"), "build", join(source, "app")], {
    hang: 300_000,
  });
  assert.deepEqual([made.code, made.stderr], [0, ""]);
  mkdirSync(join(source, "app/data"));
  for (const copied of instruction("COPY")) {
    const [, stage, from = "", to = ""] = /^--from=(\w+) (?:--chown=node:node )?(\S+) (\S+)$/.exec(copied) ?? [];
    assert.equal(stage, "build", copied);
    cpSync(join(source, from), join(app, to), { recursive: true });
  }
  const [program = "", ...entry] = JSON.parse(instruction("ENTRYPOINT")[0]!) as string[];
  const command = JSON.parse(instruction("CMD").at(-1)!) as string[];
  assert.deepEqual([program, command.at(-2), command.at(-1)], ["node", "--port", "3141"]);
  const words = [...entry, ...command.slice(0, -1), "0"];
  const service = await serve(t, [process.execPath, ...words], { cwd: app });
  assert.equal((await fetch(`${service.url.replace("0.0.0.0", "127.0.0.1")}/readyz`)).status, 200);
  assert.equal(await service.interrupt("SIGTERM"), 0);
});

test("docs/deploy/service.yaml is valid, and what each example gives a stop is longer than its drain", () => {
  assert.deepEqual(
    ISSUES.filter(({ severity }) => severity === "error"),
    [],
  );
  assert.equal(DRAIN_S, 30);
  const { services } = parse(read("docs/deploy/compose.yaml"), { merge: true });
  for (const name of ["penstock-1", "penstock-2"]) assert.ok(seconds(services[name].stop_grace_period) > DRAIN_S, name);
  const [, stop = ""] = /^TimeoutStopSec=(\S+)$/m.exec(read("docs/deploy/penstock.service")) ?? [];
  assert.ok(seconds(stop) > DRAIN_S);
  const [deployment] = parseAllDocuments(read("docs/deploy/kubernetes.yaml")).map((each) => each.toJS());
  const { terminationGracePeriodSeconds: grace, containers } = deployment.spec.template.spec;
  assert.ok(grace > DRAIN_S + Number(containers[0].lifecycle.preStop.exec.command[1]));
});

test("docs/deploy/compose.yaml: every variable, network, volume and service that it names is there, and nothing runs as root", () => {
  const text = read("docs/deploy/compose.yaml");
  const { services, networks, volumes } = parse(text, { merge: true });
  assert.deepEqual(Object.keys(services).sort(), ["nginx", "penstock-1", "penstock-2", "postgres"]);
  for (const [name, service] of Object.entries<Record<string, Loose>>(services)) {
    for (const other of Object.keys(service.depends_on ?? {})) assert.ok(other in services, `${name}: ${other}`);
    for (const network of service.networks) assert.ok(network in networks, `${name}: ${network}`);
    for (const volume of service.volumes as string[]) {
      const [from = ""] = volume.split(":", 1);
      if (from.startsWith("./")) read(join("docs/deploy", from));
      else assert.ok(from in volumes, `${name}: ${from}`);
    }
    if (!name.startsWith("penstock")) continue;
    assert.deepEqual([service.read_only, service.user, service.cap_drop], [true, "node", ["ALL"]]);
    assert.deepEqual(Object.keys(service.environment), Object.keys(VARIABLES));
  }
  const [, line = ""] = /^# +printf '(.*?)'/m.exec(text) ?? [];
  const asked = new Set([...text.matchAll(/\$\{(\w+):\?/g)].map(([, name]) => name));
  for (const name of asked) assert.ok(line.includes(`${name}=`), name);
});

test("docs/deploy/kubernetes.yaml says how to make the secret with every variable of the manifest, and the console's key", () => {
  const [, secret = ""] =
    /^# +kubectl create secret generic penstock (.*)$/m.exec(read("docs/deploy/kubernetes.yaml")) ?? [];
  const given = [...secret.matchAll(/--from-literal=(\w+)=/g)].map(([, name]) => name);
  assert.deepEqual(given, Object.keys(VARIABLES));
});

test("docs/deploy/nginx.conf is sound to nginx, and has the map and the server of docs/deployment.md", (t) => {
  const text = read("docs/deploy/nginx.conf");
  const [, snippet = ""] = /```nginx\n(.*?)```/s.exec(read("docs/deployment.md")) ?? [];
  const [shown, shipped] = [snippet, text].map((each) => {
    const lines = each.split("\n").map((line) =>
      line
        .replace(/\s*#.*$/, "")
        .trim()
        .replace(/\s+/g, " "),
    );
    const directives = lines.filter((line) => line !== "");
    return directives.slice(directives.findIndex((line) => line.startsWith("map ")));
  });
  assert.ok(shown!.length > 15, snippet);
  // The file has the brace of `http` too.
  assert.deepEqual(shipped, [...shown!, "}"]);
  const missing = programMissing("nginx");
  if (missing) return t.skip(missing);
  const folder = emptyFolder(t);
  const file = join(folder, "nginx.conf");
  writeFileSync(file, `pid ${folder}/pid; error_log stderr;\n${text.replace(/penstock-[12]:/g, "127.0.0.1:")}`);
  const { status, stderr } = spawnSync("nginx", ["-t", "-c", file, "-p", folder], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
});

test("docs/deploy/penstock.service is sound to systemd, with the programs that are here", (t) => {
  const text = read("docs/deploy/penstock.service");
  const keys = [...text.matchAll(/^([A-Z]\w+)=/gm)].map(([, key]) => key!);
  for (const key of ["NoNewPrivileges", "ProtectSystem", "DynamicUser", "CapabilityBoundingSet", "SystemCallFilter"])
    assert.ok(keys.includes(key), key);
  const missing = programMissing("systemd-analyze");
  if (missing) return t.skip(missing);
  const file = join(emptyFolder(t), "penstock.service");
  writeFileSync(file, text.replaceAll("/usr/bin/node", process.execPath));
  const { status, stderr } = spawnSync("systemd-analyze", ["verify", "--man=no", file], { encoding: "utf8" });
  assert.equal(
    stderr
      .split("\n")
      .filter((line) => line.includes("penstock.service"))
      .join("\n"),
    "",
  );
  assert.equal(status, 0, stderr);
});

test("docs/deploy/kubernetes.yaml: probes, budget and selectors fit each other and the service", () => {
  const documents = parseAllDocuments(read("docs/deploy/kubernetes.yaml"));
  for (const { errors } of documents) assert.deepEqual(errors, []);
  const [deployment, service, budget] = documents.map((each) => each.toJS());
  assert.deepEqual([deployment.kind, service.kind, budget.kind], ["Deployment", "Service", "PodDisruptionBudget"]);
  const { labels } = deployment.spec.template.metadata;
  for (const selector of [
    deployment.spec.selector.matchLabels,
    service.spec.selector,
    budget.spec.selector.matchLabels,
  ])
    assert.deepEqual(selector, labels);
  const { containers, volumes, securityContext } = deployment.spec.template.spec;
  const [container] = containers;
  assert.equal(securityContext.runAsNonRoot, true);
  assert.equal(container.securityContext.readOnlyRootFilesystem, true);
  assert.deepEqual(
    [container.livenessProbe, container.readinessProbe].map(({ httpGet }) => httpGet.path),
    ["/healthz", "/readyz"],
  );
  assert.equal(container.ports[0].containerPort, EXAMPLE?.server.port);
  const named = (each: { name: string }) => each.name;
  assert.deepEqual(container.volumeMounts.map(named), volumes.map(named));
  assert.ok(deployment.spec.replicas > budget.spec.minAvailable);
});
