/** Penstock as a user starts it: a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Penstock from its sources, as a checkout starts it that has no bundle of them. */
export const CHECKOUT = join(ROOT, "core/from-sources.js");
/** Penstock: the build that a run of all tests makes for its files, which starts in a fifth of the time, or else the sources. */
export const PENSTOCK = process.env.PENSTOCK_TEST_BUILD || CHECKOUT;
/** For `node`: what runs TypeScript. A run of all tests has translated its sources once. */
export const TYPESCRIPT = ["--import", process.env.PENSTOCK_TEST_LOADER || "tsx"];

/** For hangs only. */
const HANG_MS = 240_000;

export interface Call {
  cwd?: string;
  /** Added to a bare environment: what a developer has set must not decide a test. */
  env?: Record<string, string>;
  /** Milliseconds, of a program that has much to do; for hangs only. */
  hang?: number;
  /** Told of the process of `serve` as soon as there is one, whether it comes to serve or not. */
  begun?: (child: ChildProcess) => void;
}

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

const bare = (env: Record<string, string> = {}) => ({ PATH: process.env.PATH, HOME: process.env.HOME, ...env });

/** Runs any program to its end. */
export async function run(
  command: string,
  args: string[],
  { cwd = ROOT, env, hang = HANG_MS }: Call = {},
): Promise<Ended> {
  const child = spawn(command, args, { cwd, env: bare(env), stdio: ["ignore", "pipe", "pipe"], timeout: hang });
  const ended: Ended = { code: null, stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => {
    ended.stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    ended.stderr += text;
  });
  const [code] = await once(child, "close");
  return { ...ended, code };
}

/** `penstock ARGS...` to its end. */
export const penstock = (args: string[], call?: Call): Promise<Ended> =>
  run(process.execPath, [PENSTOCK, ...args], call);

/** Signals the process group that a detached child leads. Once it has ended, the system may have given its id to another process. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid!, signal);
}

export interface Served {
  readonly child: ChildProcess;
  readonly url: string;
  /** Everything written so far. */
  stdout(): string;
  stderr(): string;
  /** Resolves when the output holds it, standard error too; the output from `from` on counts. */
  says(pattern: RegExp, from?: number): Promise<RegExpMatchArray>;
  /** Signals the whole process group, as a terminal does, and gives the exit code. */
  interrupt(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Starts a program that serves, and waits for the line that says where. It is stopped when the test ends. */
export async function serve(
  test: Pick<TestContext, "after">,
  [command, ...args]: [string, ...string[]],
  { cwd = ROOT, env, begun }: Call = {},
): Promise<Served> {
  // A group of its own, so that a signal reaches what npm starts and not the tests.
  const options = { cwd, env: bare(env), detached: true } as const;
  const child = spawn(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  begun?.(child);
  const closed = once(child, "close");
  let stdout = "";
  let stderr = "";
  let look = () => undefined as unknown;
  child.stdout.setEncoding("utf8").on("data", (text) => {
    stdout += text;
    look();
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    stderr += text;
    look();
  });
  const interrupt = async (signal: NodeJS.Signals = "SIGINT") => {
    signalGroup(child, signal);
    await closed;
    return child.exitCode;
  };
  test.after(() => interrupt("SIGTERM"));
  const says = (pattern: RegExp, from = 0) =>
    new Promise<RegExpMatchArray>((resolve, reject) => {
      const fail = (why: string) => reject(new Error(`${why} before it said ${pattern}:\n${stdout}\n${stderr}`));
      const timer = setTimeout(() => fail("waited long"), HANG_MS);
      const previous = look;
      look = () => {
        previous();
        // Each by itself: the last line of one may be there in part.
        const match = stdout.slice(from).match(pattern) ?? stderr.match(pattern);
        if (match === null) return;
        clearTimeout(timer);
        resolve(match);
      };
      closed.then(() => {
        clearTimeout(timer);
        fail(`ended with ${child.exitCode}`);
      });
      look();
    });
  const [, url] = await says(/ listens on (http:\S+): .*\n/);
  return { child, url: url!, stdout: () => stdout, stderr: () => stderr, says, interrupt };
}
