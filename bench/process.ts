/** Child processes pinned to a core, and their figures from the kernel. Available on Linux; elsewhere the figures are NaN. */
import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

/** The server under test has one core to itself, and the load another: figures are "on one core". */
export const SERVER_CORE = 0;
export const LOAD_CORE = 1;

/** Clock ticks per second in `/proc/PID/stat`: 100 in every Linux of today. */
const TICKS = 100;
const MIB = 1024 * 1024;

export function hasCommand(name: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${name}`], { stdio: "ignore" }).status === 0;
}

let pinning: boolean | undefined;

/** Whether processes are pinned, which needs `taskset` and two cores. */
export function pins(): boolean {
  pinning ??= availableParallelism() > 1 && hasCommand("taskset");
  return pinning;
}

/**
 * Spawns on one core, or on any with null. `taskset` replaces itself with the command, so the child's pid is the command's. However this
 * process ends, the child does not outlive it.
 */
export function spawnOn(
  core: number | null,
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  const child =
    core !== null && pins()
      ? spawn("taskset", ["-c", String(core), command, ...args], options)
      : spawn(command, [...args], options);
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  child.once("exit", () => process.removeListener("exit", kill));
  return child;
}

/** Makes signals end this process with `exit`, so that children are ended too. */
export function exitOnSignals(): void {
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const) {
    process.once(signal, () => process.exit(code));
  }
}

function procFile(pid: number, name: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    return null;
  }
}

/** CPU seconds (user and system, all threads) that a process has used. */
export function cpuSeconds(pid: number): number {
  const stat = procFile(pid, "stat");
  if (stat === null) return Number.NaN;
  // The command name in parentheses may contain blanks; the third field follows it.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** Resident memory of a process in MiB. */
export function residentMiB(pid: number): number {
  const line = procFile(pid, "status")?.match(/^VmRSS:\s+(\d+) kB$/m);
  return line ? (Number(line[1]) * 1024) / MIB : Number.NaN;
}

/** How many files a process may have open. Node raises its own limit to the hard one when it starts. */
export function openFiles(): number {
  const [, hard] = /^Max open files +\d+ +(\d+)/m.exec(procFile(process.pid, "limits") ?? "") ?? [];
  return hard === undefined ? Number.POSITIVE_INFINITY : Number(hard);
}

/** Direct children of a process. */
export function childrenOf(pid: number): number[] {
  const tasks = (() => {
    try {
      return readdirSync(`/proc/${pid}/task`);
    } catch {
      return [];
    }
  })();
  return tasks.flatMap((task) => (procFile(pid, `task/${task}/children`) ?? "").split(" ").filter(Boolean).map(Number));
}

/** Waits for the end of a process, at most `millis`; then kills it. */
export async function ended(child: ChildProcess, millis: number): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const timer = setTimeout(() => child.kill("SIGKILL"), millis);
  await new Promise<void>((resolve) => child.once("exit", () => resolve()));
  clearTimeout(timer);
}

/** The first message that a child sends over its channel; rejects with its stderr when it ends before that. */
export function firstMessage<T>(child: ChildProcess): Promise<T> {
  return new Promise((resolve, reject) => {
    let errors = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      errors += text;
    });
    child.once("message", (message) => resolve(message as T));
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`ended with ${code} before it answered\n${errors}`)));
  });
}
