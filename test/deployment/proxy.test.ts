/** The proxy snippets, run as they stand by the real proxies (only ports differ), in front of a real service. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { WebSocket } from "ws";
import { heldModel } from "../support/held-model.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { onPort } from "../support/ports.ts";
import { programMissing } from "../support/programs.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

interface Proxy {
  name: string;
  /** The snippet as a whole configuration file. */
  configuration(snippet: string, folder: string): string;
  command(file: string, folder: string): [string, string[]];
}

const PROXIES: Proxy[] = [
  {
    name: "nginx",
    configuration: (snippet, folder) =>
      `daemon off; pid ${folder}/pid; error_log stderr; events {} http { access_log off;
       client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy; fastcgi_temp_path ${folder}/f;
       uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;\n${snippet}\n}`,
    command: (file, folder) => ["nginx", ["-c", file, "-p", folder]],
  },
  {
    name: "caddyfile",
    configuration: (snippet) => `{\n admin off\n auto_https off\n}\n${snippet}`,
    command: (file) => ["caddy", ["run", "--adapter", "caddyfile", "--config", file]],
  },
];

async function snippetOf(language: string): Promise<string> {
  const readme = await readFile(new URL("../../docs/deployment.md", import.meta.url), "utf8");
  const found = readme.match(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "s"));
  assert.ok(found, `docs/deployment.md has a ${language} snippet`);
  return found[1]!;
}

interface ProxyOptions {
  /** What a reader changes in the snippet. */
  edit?(snippet: string): string;
  /** Default: any that is free. */
  port?: number;
  /** Where the service is at it. */
  base?: string;
}

async function startProxy(
  t: TestContext,
  proxy: Proxy,
  upstream: number,
  { edit = (snippet: string) => snippet, port, base = "" }: ProxyOptions = {},
): Promise<string> {
  if (port === undefined) return onPort((given) => startProxy(t, proxy, upstream, { edit, port: given, base }));
  const folder = await mkdtemp(join(tmpdir(), "penstock-proxy-"));
  const snippet = edit(await snippetOf(proxy.name))
    .replaceAll("3141", String(upstream))
    .replaceAll("8080", String(port));
  const file = join(folder, "configuration");
  await writeFile(file, proxy.configuration(snippet, folder));
  const [command, options] = proxy.command(file, folder);
  const child: ChildProcess = spawn(command, options, {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, HOME: folder },
  });
  let complaint = "";
  child.stderr?.on("data", (chunk) => {
    complaint += chunk;
  });
  t.after(async () => {
    // Not SIGKILL: nginx's workers would outlive it.
    const ended = child.exitCode !== null ? undefined : once(child, "exit");
    child.kill("SIGTERM");
    await ended;
    await rm(folder, { recursive: true, force: true });
  });
  const url = `http://127.0.0.1:${port}`;
  for (let attempt = 0; attempt < 1_200; attempt++) {
    if (child.exitCode !== null) break;
    const up = await fetch(`${url}${base}/healthz`).then(
      (reply) => reply.ok,
      () => false,
    );
    if (up) return url;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${command} does not start: ${complaint}`);
}

for (const proxy of PROXIES) {
  const command = proxy.command("", "")[0];
  for (const transport of TRANSPORTS) {
    const skip = programMissing(command);
    test(`behind ${command}, over ${transport}: replies pass, and events arrive as they come`, { skip }, async (t) => {
      const model = heldModel(t);
      model.hold("one two");
      const manifest = manifestWith({}, { server: { transport }, providers: { demo: model.settings } });
      const service = await startService(t, manifest, { plugins: [model.plugins] });
      const url = await startProxy(t, proxy, service.port);

      for (let round = 0; round < 5; round++) {
        const reply = await fetch(`${url}/agents`);
        assert.equal(reply.status, 200);
        assert.equal(((await reply.json()) as { data: unknown[] }).data.length, 1);
      }
      const stream = await fetch(`${url}/agents/assistant/stream`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ input: "one two" }),
      });
      let text = "";
      for await (const chunk of stream.body!) {
        text += Buffer.from(chunk).toString();
        // The rest is made when the first half has arrived, and not before.
        if (text.includes("half 1")) model.release("one two");
      }
      assert.equal(JSON.parse(parseEvents(text).at(-1)!.data).type, "finish");
      assert.match(text, /rest 1/);
    });
  }
}

const NGINX = PROXIES[0]!;
const skip = programMissing("nginx");

test("behind nginx as docs/deployment.md configures it: WS /ws opens, and a body of 3 MB reaches the service", {
  skip,
}, async (t) => {
  const service = await startService(
    t,
    manifestWith({}, { server: { limits: { body: { default: "4MiB", generation: "4MiB" } } } }),
  );
  const url = await startProxy(t, NGINX, service.port);
  const socket = new WebSocket(`${url.replace("http", "ws")}/ws`);
  await once(socket, "open");
  socket.close();
  await once(socket, "close");
  const reply = await fetch(`${url}/agents/assistant/text`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: `${JSON.stringify({ input: "Hi" })}${" ".repeat(3_000_000)}`,
  });
  assert.equal(reply.status, 200, await reply.text());
});

/** As docs/deployment.md says it: the proxy strips the base path. */
const BASE = {
  base: "/base",
  edit: (snippet: string) =>
    snippet
      .replace("location / {", "location = /base { return 308 /base/; }\n  location /base/ {")
      .replace("proxy_pass http://penstock;", "proxy_pass http://penstock/;"),
};
const FROM = `export default { kind: "route", name: "from", method: "GET", path: "/from", handle: (_, call) => call.client };`;

test("behind nginx below a base path: every link of the pages leads somewhere, /doc and cards say where", {
  skip,
}, async (t) => {
  const [publicUrl, url] = await onPort(async (port) => {
    const publicUrl = `http://127.0.0.1:${port}/base`;
    const service = await startService(t, manifestWith({}, { server: { publicUrl } }));
    return [publicUrl, await startProxy(t, NGINX, service.port, { ...BASE, port })] as const;
  });
  const moved = await fetch(`${url}/base`);
  assert.equal(moved.url, `${publicUrl}/`);
  const visited = new Set<string>();
  for (const address of [`${publicUrl}/`, `${publicUrl}/ui`]) {
    const page = await fetch(address);
    assert.equal(page.status, 200, address);
    for (const [, link] of (await page.text()).matchAll(/(?:href|src)="([^"#]+)"/g)) {
      const { href } = new URL(link!.replaceAll("&amp;", "&"), address);
      if (href.startsWith("data:")) continue;
      assert.ok(href.startsWith(publicUrl), href);
      assert.equal((await fetch(href)).status, 200, href);
      visited.add(href);
    }
  }
  assert.ok(visited.size > 8, [...visited].join(" "));
  const { servers, paths } = (await (await fetch(`${publicUrl}/doc`)).json()) as Loose;
  for (const server of servers) {
    const at = new URL(server.url, `${publicUrl}/doc`).href.replace(/\/$/, "");
    assert.equal(at, publicUrl);
  }
  assert.ok("/agents" in paths);
  const card = await dataOf(fetch(`${publicUrl}/agents/assistant/card`));
  assert.equal(card.url, `${publicUrl}/a2a/assistant`);
});

test("behind nginx as docs/deployment.md configures it: a trusted proxy says who asks, and by which address", {
  skip,
}, async (t) => {
  const plugins = [pluginFolder(t, { "routes/from.mjs": FROM })];
  const server = { trustedProxies: ["127.0.0.1"] };
  const service = await startService(t, manifestWith({}, { server, routes: [{ use: "from" }] }), { plugins });
  const url = await startProxy(t, NGINX, service.port);
  // The loopback is trusted, so that who speaks to nginx from there may be a proxy too; a lie about the host is not passed on.
  const headers = { "x-forwarded-for": "203.0.113.5", "x-forwarded-host": "liar.example" };
  const { host } = new URL(url);
  assert.deepEqual(await dataOf(fetch(`${url}/from`, { headers })), { address: "203.0.113.5", scheme: "http", host });
  assert.equal((await dataOf(fetch(`${url}/agents/assistant/card`))).url, `${url}/a2a/assistant`);
});
