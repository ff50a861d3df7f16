/** Contract, "Observability, logs, updates, discovery": the keys that are written to the environment file. */
import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { run } from "../support/command-line.ts";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

async function serve(t: TestContext) {
  const service = await startService(t, manifestWith());
  const { folder } = service.booted.loaded;
  return { service, folder, file: join(folder, ".env") };
}

const KEYS = { publicKey: "pk_1.a-B", secretKey: "sk_SECRET-0123" };

test("POST /setup-observability: sets the two variables of .env beside the manifest, for its owner alone, and nothing else", async (t) => {
  const { service, folder, file } = await serve(t);
  const { message } = await dataOf(service.post("/setup-observability", KEYS));
  assert.equal(message, "the keys are in .env: they count from the next start on");
  assert.equal(readFileSync(file, "utf8"), "SERVICE_PUBLIC_KEY=pk_1.a-B\nSERVICE_SECRET_KEY=sk_SECRET-0123\n");
  assert.equal(statSync(file).mode & 0o777, 0o600);

  const rest = Buffer.concat([Buffer.from("# mine\r\nOTHER='\u00fc'\r\nBYTES="), Buffer.from([0xff, 0xfe, 0x80])]);
  writeFileSync(file, Buffer.concat([rest, Buffer.from("\r\nSERVICE_SECRET_KEY=old\r\n")]));
  chmodSync(file, 0o640);
  await dataOf(service.post("/setup-observability", KEYS));
  const added = "\r\nSERVICE_SECRET_KEY=sk_SECRET-0123\r\nSERVICE_PUBLIC_KEY=pk_1.a-B\r\n";
  assert.deepEqual(readFileSync(file), Buffer.concat([rest, Buffer.from(added)]));
  assert.equal(statSync(file).mode & 0o777, 0o640);
  assert.deepEqual(
    readdirSync(folder).filter((name) => name.startsWith(".env")),
    [".env"],
    "no file is left beside it",
  );
  assert.ok(!JSON.stringify(service.log).includes(KEYS.secretKey));
  const node = ["--env-file", file, "-p", "process.env.SERVICE_SECRET_KEY"];
  assert.equal((await run(process.execPath, node)).stdout.trim(), KEYS.secretKey);
});

test("POST /setup-observability: what is no key is 400 and writes nothing", async (t) => {
  const { service, file } = await serve(t);
  const BAD: [body: unknown, error: RegExp][] = [
    [{}, /publicKey is required; secretKey is required/],
    [{ ...KEYS, publicKey: "a\nPATH=/evil" }, /^publicKey must match/],
    [{ ...KEYS, publicKey: "a\n" }, /^publicKey must match/],
    [{ ...KEYS, secretKey: "" }, /^secretKey must match/],
    [{ ...KEYS, secretKey: "x".repeat(257) }, /^secretKey must match/],
    [{ ...KEYS, secretKey: "a b" }, /^secretKey must match/],
    [{ ...KEYS, secretKey: "$(id)" }, /^secretKey must match/],
    [{ ...KEYS, secretKey: 1 }, /^secretKey must be string/],
  ];
  for (const [body, error] of BAD) {
    const answer = await errorOf(service.post("/setup-observability", body));
    assert.equal(answer.status, 400, JSON.stringify(body));
    assert.match(answer.error, error);
  }
  assert.ok(!existsSync(file));
});

test("POST /setup-observability: many at once leave a whole file, of one of them", async (t) => {
  const { service, file } = await serve(t);
  writeFileSync(file, "FIRST=1\n");
  const pairs = Array.from({ length: 40 }, (_, index) => ({ publicKey: `pk-${index}`, secretKey: `sk-${index}` }));
  const seen = new Set<string>();
  const watching = setInterval(() => seen.add(readFileSync(file, "utf8")), 1);
  t.after(() => clearInterval(watching));
  await Promise.all(pairs.map((keys) => dataOf(service.post("/setup-observability", keys))));
  clearInterval(watching);
  seen.add(readFileSync(file, "utf8"));
  for (const text of seen)
    assert.match(text, /^FIRST=1\n(?:SERVICE_PUBLIC_KEY=pk-(\d+)\nSERVICE_SECRET_KEY=sk-\1\n)?$/);
});

test("POST /setup-observability: a link, a folder and a file that is too large are left as they are", async (t) => {
  const { service, folder, file } = await serve(t);
  const refused = async (error: RegExp) => {
    const answer = await errorOf(service.post("/setup-observability", KEYS));
    assert.equal(answer.status, 409);
    assert.match(answer.error, error);
  };
  const target = join(folder, "target");
  writeFileSync(target, "X=1\n");
  symlinkSync(target, file);
  await refused(/not a plain file/);
  assert.equal(readFileSync(target, "utf8"), "X=1\n");
  rmSync(file);
  mkdirSync(file);
  await refused(/not a plain file/);
  rmSync(file, { recursive: true });
  writeFileSync(file, Buffer.alloc(1024 * 1024 + 1, "#"));
  await refused(/larger than 1 MiB/);
});
