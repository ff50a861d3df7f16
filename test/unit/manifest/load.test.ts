// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the manifest writes references to the environment so.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { formatExplained } from "../../../core/manifest/explain.ts";
import { loadManifest, parseManifest } from "../../../core/manifest/load.ts";
import type { StepManifest } from "../../../core/manifest/manifest.ts";

const folder = mkdtempSync(join(tmpdir(), "penstock-load-"));
after(() => rmSync(folder, { recursive: true }));

const parse = (text: string, env: Record<string, string> = {}) => parseManifest(text, { file: "service.yaml", env });

describe("loadManifest", () => {
  it("loadManifest says that there is no such file, and does not throw", async () => {
    const { manifest, issues } = await loadManifest(join(folder, "none.yaml"), {});
    assert.equal(manifest, null);
    assert.deepEqual(
      issues.map(({ line, column, message }) => [line, column, message]),
      [[1, 1, "there is no such file: penstock init makes a project"]],
    );
  });

  it("loadManifest says that a folder is no manifest", async () => {
    const { issues } = await loadManifest(folder, {});
    assert.match(issues[0]!.message, /this is a folder/);
  });

  it("loadManifest reads ${file:...} from beside the manifest", async () => {
    writeFileSync(join(folder, "name.txt"), "Desk\n");
    writeFileSync(join(folder, "service.yaml"), 'name: "${file:name.txt}"\n');
    const { manifest, issues } = await loadManifest(join(folder, "service.yaml"), {});
    assert.deepEqual(issues, []);
    assert.equal(manifest?.name, "Desk");
  });

  it("loadManifest freezes the manifest at every depth", () => {
    const { manifest } = parse("tools: { t: { use: add, with: { list: [ { a: 1 } ] } } }");
    const list = manifest!.tools.t!.with!.list as { a: number }[];
    assert.throws(() => {
      list[0]!.a = 2;
    }, TypeError);
    assert.ok(Object.isFrozen(manifest!.server.limits));
  });

  it("gives every duration in milliseconds and every size in bytes, as numbers of the manifest's type", () => {
    const { manifest } = parse(
      [
        "name: x",
        "server: { limits: { body: 64KiB, request: 2m } }",
        "tools: { t: { use: add, timeout: 250ms } }",
        "mcp: { clients: { c: { command: node, timeout: 5s } } }",
        "workflows:",
        "  w:",
        "    timeout: 1h",
        "    retention: 2d",
        "    retry: { delay: 10s }",
        "    steps: [{ id: s, timeout: 1.5s, andThen: { use: audit } }]",
      ].join("\n"),
    );
    const { server, tools, mcp, workflows, history, observability } = manifest!;
    const [w, [step]] = [workflows.w!, workflows.w!.steps];
    // The annotation is a check too: of a type that says text, this file would not compile.
    const numbers: (number | undefined)[] = [
      ...[server.limits.body as number, server.limits.request, server.limits.socketMessage],
      ...[tools.t!.timeout, mcp.clients.c!.timeout],
      ...[w.timeout, w.retention, w.retry.delay, (step as StepManifest).timeout],
      ...[history.retention, observability.retention, observability.size],
    ];
    assert.deepEqual(numbers.slice(0, 2), [65_536, 120_000]);
    assert.deepEqual(numbers.slice(3, 9), [250, 5_000, 3_600_000, 172_800_000, 10_000, 1_500]);
    assert.deepEqual(
      numbers.filter((value) => typeof value !== "number"),
      [],
    );
  });

  it("loadManifest is not led astray by Windows line ends and a byte order mark", () => {
    const { issues } = parse("\uFEFFname: x\r\nserver:\r\n  prt: 1\r\n");
    assert.deepEqual(
      issues.map(({ line, column, path }) => [line, column, path]),
      [[3, 3, "server.prt"]],
    );
  });

  it("loadManifest refuses a bomb of aliases quickly", () => {
    const levels = Array.from({ length: 12 }, (_, level) => `x-${level}: &a${level} [${`*a${level - 1}, `.repeat(9)}]`);
    levels[0] = "x-0: &a0 [ 1, 2 ]";
    const { issues } = parse(levels.join("\n"));
    assert.ok(issues.some(({ message }) => message === "too many values, or nested too deep"));
  });
});

describe("explain", () => {
  const loaded = parse(
    'name: Desk\nserver:\n  port: "${PORT}"\n  limits: { drain: "${DRAIN:-10s}", body: 64KiB }\nproviders:\n  p: { use: scripted, key: "Bearer ${KEY}" }\n',
    { PORT: "8080", KEY: "topsecret" },
  );
  const explain = (path: string) => formatExplained(loaded.explain(path));

  it("explain gives the place in the file, or says that it is a default", () => {
    assert.equal(explain("name"), 'name: "Desk"  # service.yaml:1:1');
    assert.equal(explain("server.host"), 'server.host: "127.0.0.1"  # default of the schema');
    assert.equal(explain("server.limits.body"), "server.limits.body: 65536  # service.yaml:4:37");
  });

  it("explain names the variable and never shows what was in it", () => {
    assert.equal(explain("server.port"), 'server.port: "***"  # environment variable PORT (service.yaml:3:3)');
    assert.equal(
      explain("providers.p.key"),
      'providers.p.key: "Bearer ***"  # environment variable KEY (service.yaml:6:23)',
    );
    assert.equal(explain("server.limits.drain"), "server.limits.drain: 10000  # service.yaml:4:13");
    assert.doesNotMatch(explain(""), /8080|topsecret/);
  });

  it("explain lists every value below a path", () => {
    const { entries } = loaded.explain("server.limits");
    assert.deepEqual(
      entries.map(({ path }) => path).sort(),
      [
        "approvals",
        "body",
        "connections",
        "drain",
        "execution",
        "executions",
        "heartbeat",
        "request",
        "socketMessage",
        "stall",
        "streamBuffer",
        "uploads",
        "userExecutions",
        "userTasks",
        "vectors",
      ].map((key) => `server.limits.${key}`),
    );
  });

  it("suggests the near path for one that is not there", () => {
    assert.equal(loaded.explain("server.prt").problem, 'there is no "prt" in server, did you mean "port"?');
    assert.match(loaded.explain("a[").problem ?? "", /is not a path/);
  });
});
