/** Everything wrong with a manifest is in one report, whichever stage of the boot finds it. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { boot } from "../../core/app/boot.ts";
import { formatIssue } from "../../core/manifest/manifest.ts";
import { createLogger } from "../../core/observability/logger.ts";
import { EXAMPLES } from "../support/plugin-folder.ts";

const MANIFEST = `name: Faulty
version: "1.0"
server: { prot: 1 }
providers:
  demo: { use: scripted }
  far: { use: "@ai-sdk/no-such-package" }
  near: { use: openai-compatible, baseURL: "http://127.0.0.1:9", retries: many }
  open: { use: openai-compatible, baseURL: "http://127.0.0.1:9", apiKey: "\${NO_SUCH_VARIABLE}" }
tools:
  broken: { use: addd }
  call: { description: Calls, http: { url: "http://127.0.0.1:9/{{ input.x", method: FETCH } }
  host: { description: Calls, http: { url: "http://{{ input.host }}/" } }
agents:
  one: { name: One, description: d, instructions: i, model: demo/ecko }
  two: { name: Two, description: d, instructions: i, modle: demo/echo }
  three: { name: Three, description: d, instructions: "{{ context. }}", model: far/x, tools: [brokn] }
  four: { name: Four, description: d, instructions: i, model: near/x }
routes: [{ use: helo }]
workflows:
  taxed: { steps: [{ id: a, andThen: { use: add-tax, with: { rate: high } } }, { id: b, andWorkflow: { workflow: typed } }] }
  typed: { input: { type: objekt }, steps: [{ id: a, andThen: { set: "{{ steps.c }}" } }, { id: a, andTap: { use: audt } }] }
  shaped: { steps: [{ id: a, andTap: { use: slow, with: { second: 1 } } }, { id: b, andTap: { set: 1 } }] }
  called: { steps: [{ id: a, andWhen: { if: data. , then: { id: b, andTap: { use: slow, with: { second: 1 } } } } }] }
`;

/** Beginning of each line that must be there: the place, the path, and what is said. */
const EXPECTED = [
  /:3:11 {2}server\.prot: unknown key, did you mean "port"\?/,
  /:6:\d+ {2}providers\.far\S*: .*npm install @ai-sdk\/no-such-package/,
  /:7:\d+ {2}providers\.near.retries: /,
  /:8:\d+ {2}providers\.open\.apiKey: the environment variable NO_SUCH_VARIABLE is not set/,
  /:10:\d+ {2}tools\.broken\.use: .*did you mean "add"\?/,
  /:11:\d+ {2}tools\.call\.http\.method: /,
  /:12:\d+ {2}tools\.host\.http\.url: /,
  /:14:\d+ {2}agents\.one\.model: .*ecko/,
  /:15:\d+ {2}agents\.two\.modle: unknown key, did you mean "model"\?/,
  /:16:\d+ {2}agents\.three\.instructions: /,
  /:16:\d+ {2}agents\.three\.tools\[0\]: .*did you mean "broken"\?/,
  /:18:\d+ {2}routes\[0\]\.use: .*did you mean "hello"\?/,
  /:20:\d+ {2}workflows\.taxed\.steps\[0\]\.andThen\.with: rate must be number/,
  /:21:\d+ {2}workflows\.typed\.input: not a JSON Schema: /,
  /:21:\d+ {2}workflows\.typed\.steps\[0\]\.andThen\.set: there is no step "c"/,
  /:21:\d+ {2}workflows\.typed\.steps\[1\]\.id: "a" is the id of another step/,
  /:21:\d+ {2}workflows\.typed\.steps\[1\]\.andTap\.use: .*did you mean "audit"\?/,
  /:22:\d+ {2}workflows\.shaped\.steps\[1\]\.andTap: /,
  /:23:\d+ {2}workflows\.called\.steps\[0\]\.andWhen\.if: /,
  /:23:\d+ {2}workflows\.called\.steps\[0\]\.andWhen\.then\.andTap\.with: second is not a known key/,
];

test("a manifest that is wrong in its shape, references, plugins, providers, workflows and expressions is one report", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "penstock-report-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const config = join(folder, "service.yaml");
  await writeFile(config, MANIFEST);
  const { service, issues, host } = await boot({
    config,
    plugins: [EXAMPLES],
    env: {},
    logger: createLogger("silent"),
  });
  await host.close();
  assert.equal(service, null);
  const lines = issues.filter(({ severity }) => severity === "error").map(formatIssue);
  for (const expected of EXPECTED) {
    assert.equal(lines.filter((line) => expected.test(line)).length, 1, `${expected} in\n${lines.join("\n")}`);
  }
});

const STORES: Record<string, RegExp | null> = {
  "postgres://u:secret@h/d?schema=Mine":
    /^schema must be a name of small letters, digits and _ that begins with no digit$/,
  "postgres://u:secret@h/d?pool=many": /^pool must be a number of connections from 3 to 100$/,
  "postgres://u:secret@h/d?pool=": /^pool must be a number of connections from 3 to 100$/,
  "postgresql://u:secret@h/d?pol=5":
    /^the setting pol is unknown, or one that is not carried out; postgres: knows application_name, channel_binding, .*, user$/,
  "postgres://u:secret@h:1,i:2/d?tcp_user_timeout=5":
    /^the setting tcp_user_timeout is unknown, or one that is not carried out; /,
  "postgres://u:secret@h:1,,i:2/d": /^it is no URL: .*HOST:PORT,HOST:PORT$/,
  "postgres://u:secret@h:1,i:2/d?load_balance_hosts=random":
    /^load_balance_hosts must be disable: hosts are tried in order$/,
  "postgres://u:secret@h:1,i:2/d?target_session_attrs=read-write": null,
  "sqlite:x.db?pool=5": /^unknown setting pool; sqlite: knows synchronous$/,
  "sqlite:x.db?synchronous=of": /^synchronous must be full or normal$/,
  "postgres://u:secret@h/d?schema=mine&pool=5&sslmode=require&channel_binding=require&statement_timeout=1000": null,
};

test("a manifest with a mistake in an agent says nothing of settings for the models that this agent names", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "penstock-report-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const config = join(folder, "service.yaml");
  const report = async (steps: string) => {
    const one = `  one: { name: One, description: d, instructions: i, model: demo/echo }\n`;
    const two = `  two: { name: Two, description: d, instructions: i, model: demo/spare, maxSteps: ${steps} }\n`;
    const models = "{ spare: { firstDelay: 1ms }, unused: { firstDelay: 1ms } }";
    await writeFile(
      config,
      `name: One\nproviders: { demo: { use: scripted, models: ${models} } }\nagents:\n${one}${two}`,
    );
    const { issues, host } = await boot({ config, plugins: [EXAMPLES], env: {}, logger: createLogger("silent") });
    await host.close();
    return issues.map(formatIssue).map((line) => line.replace(/^.*? {2}/, ""));
  };
  assert.match((await report("many")).join("\n"), /^agents\.two\.maxSteps: [^\n]*$/);
  assert.deepEqual(await report("3"), [
    "providers.demo.models.unused: fits none of the models that are used: echo, spare",
  ]);
});

test("penstock check says what is wrong with the settings of a store URL at the path store, and does not connect to it", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "penstock-report-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const config = join(folder, "service.yaml");
  for (const [store, message] of Object.entries(STORES)) {
    await writeFile(config, `name: A\nversion: "1.0"\nstore: ${JSON.stringify(store)}\n`);
    const { issues, close } = await boot({ config, plugins: [], env: {}, logger: createLogger("silent") });
    await close();
    const lines = issues.filter(({ severity }) => severity === "error").map(formatIssue);
    if (message === null) assert.deepEqual(lines, []);
    else {
      assert.equal(lines.length, 1, lines.join("\n"));
      const [, said = ""] = /^.*:3:\d+ {2}store: (.*)$/.exec(lines[0]!) ?? [];
      assert.match(said, message);
    }
  }
});
