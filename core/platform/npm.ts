/** Runs npm as a child process without a shell, within a time limit, without the secrets of the service. */
import { type ChildProcess, spawn } from "node:child_process";
import { ServiceError, unavailable } from "../lib/errors.ts";
import { proxyVariables } from "../outbound/proxy.ts";

interface NpmRun {
  readonly folder: string;
  /** The environment of the service; npm gets only the variables that it needs. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Time limit in milliseconds. */
  readonly limit: number;
  /** Ends npm when it aborts. */
  readonly signal: AbortSignal;
}

export interface NpmOutcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Most output of npm, which is killed when it prints more. */
const MAX_OUTPUT_CHARACTERS = 8 * 1024 * 1024;
/** Delay from SIGTERM to SIGKILL. */
const KILL_DELAY_MS = 1_000;

/** The variables for npm: scripts of packages run with them, and must not see the secrets of the service. */
const PASSED_VARIABLES =
  /^(?:path|pathext|home|userprofile|appdata|localappdata|systemroot|comspec|tmpdir|temp|tmp|lang|lc_all|node_env|node_extra_ca_certs|ssl_cert_file|ssl_cert_dir|npm_config_.*)$/i;

/** @throws ServiceError `internal` when there is no npm, `unavailable` when it takes too long or the service stops */
export async function runNpm(parameters: readonly string[], run: NpmRun): Promise<NpmOutcome> {
  if (run.signal.aborted) throw unavailable("the service is stopping");
  const what = `npm ${parameters[0]}`;
  // A separate process group, so that the processes that npm starts end with it.
  const ownGroup = process.platform !== "win32";
  const [command, before] = npmCommand(run.env);
  const child = spawn(command, [...before, ...parameters], {
    cwd: run.folder,
    env: Object.fromEntries(
      Object.entries(run.env)
        .filter(([name]) => PASSED_VARIABLES.test(name))
        .concat(Object.entries(proxyVariables())),
    ),
    stdio: ["ignore", "pipe", "pipe"],
    detached: ownGroup,
    windowsHide: true,
  });
  let failure: ServiceError | null = null;
  let killing: NodeJS.Timeout | undefined;
  const end = (reason: ServiceError) => {
    if (failure !== null) return;
    failure = reason;
    kill(child, "SIGTERM", ownGroup);
    killing = setTimeout(() => kill(child, "SIGKILL", ownGroup), KILL_DELAY_MS);
  };
  const limit = setTimeout(() => end(unavailable(`${what} took longer than ${run.limit / 1000} s`)), run.limit);
  const stop = () => end(unavailable(`the service is stopping: ${what} was ended`));
  run.signal.addEventListener("abort", stop);
  try {
    const outcome = await awaitOutcome(child, () => end(new ServiceError("internal", `${what} printed too much`)));
    if (failure !== null) throw failure;
    return outcome;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    throw new ServiceError("internal", "npm was not found: it must be on the PATH of the service");
  } finally {
    clearTimeout(limit);
    clearTimeout(killing);
    run.signal.removeEventListener("abort", stop);
  }
}

/** The npm that started the service, if one did: a script for this Node. */
function npmCommand({ npm_execpath: script = "" }: NpmRun["env"]): [command: string, parameters: string[]] {
  return /\bnpm-cli\.c?js$/.test(script) ? [process.execPath, [script]] : ["npm", []];
}

function awaitOutcome(child: ChildProcess, tooMuchOutput: () => void): Promise<NpmOutcome> {
  return new Promise((resolve, reject) => {
    let stdout = "";
    let stderr = "";
    child.stdout!.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
      if (stdout.length > MAX_OUTPUT_CHARACTERS) tooMuchOutput();
    });
    child.stderr!.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
      if (stderr.length > MAX_OUTPUT_CHARACTERS) tooMuchOutput();
    });
    child.on("error", reject);
    child.on("close", (code) => resolve({ code: code ?? 1, stdout, stderr }));
  });
}

function kill(child: ChildProcess, signal: NodeJS.Signals, ownGroup: boolean): void {
  try {
    if (ownGroup && child.pid !== undefined) process.kill(-child.pid, signal);
    else child.kill(signal);
  } catch {
    // The process has ended already.
  }
}
