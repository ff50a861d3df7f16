/**
 * Names of processes in a shared store. A name says where its process runs, so that another process at the same place can tell for
 * certain whether it has ended: what a killed process left is then taken up at once, without waiting for a lease to run out.
 */
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

const PLACE = /^([0-9a-f]{16})\.(\d+)\.(\d+)\./;
/** States of a process that does nothing any more: its parent has not asked for its exit code yet. */
const ENDED_STATES = /^[ZX]$/;

interface ProcessState {
  readonly state: string;
  /** When it started, in ticks since the boot of the machine: a later process with the same number has another. */
  readonly started: string;
}

/** A new name for this process; no two are alike. */
export function nameProcess(): string {
  const place = placeOfThisProcess();
  const started = place === null ? undefined : readState(process.pid)?.started;
  const unique = randomBytes(9).toString("hex");
  return place === null || started === undefined ? unique : `${place}.${process.pid}.${started}.${unique}`;
}

/** Whether the process with this name has ended for certain. False for those at other places, about which nothing is known here. */
export function hasEnded(name: string): boolean {
  const [, place, pid, started] = PLACE.exec(name) ?? [];
  if (place === undefined || place !== placeOfThisProcess()) return false;
  if (!exists(Number(pid))) return true;
  const found = readState(Number(pid));
  return found !== null && (found.started !== started || ENDED_STATES.test(found.state));
}

/** Where process numbers mean the same: one run of one machine, one container. Null where that cannot be told. */
function placeOfThisProcess(): string | null {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8");
    const numbers = readlinkSync("/proc/self/ns/pid");
    return createHash("sha256").update(`${hostname()}\n${boot}\n${numbers}`).digest("hex").slice(0, 16);
  } catch {
    return null;
  }
}

/** Another user's process may be hidden in /proc, but not from this. */
function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

/** Null when it cannot be read. */
function readState(pid: number): ProcessState | null {
  try {
    // The name of the program comes before, in parentheses, and may hold anything.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return { state: fields[0]!, started: fields[19]! };
  } catch {
    return null;
  }
}
