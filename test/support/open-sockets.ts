/** The sockets that a process has open, as Linux tells them. */
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";

/** Names of TCP's states as they stand in /proc/net/tcp. */
const STATES: Record<string, string> = {
  "01": "ESTABLISHED",
  "04": "FIN_WAIT1",
  "05": "FIN_WAIT2",
  "06": "TIME_WAIT",
  "08": "CLOSE_WAIT",
  "09": "LAST_ACK",
  "0A": "LISTEN",
};

/** One line for each, for example `tcp :8080 to :40112 ESTABLISHED`; none where the system does not tell. */
export function openSockets(pid: number): string[] {
  const folder = `/proc/${pid}/fd`;
  if (!existsSync(folder)) return [];
  const known = new Map(["tcp", "tcp6"].flatMap((table) => connections(pid, table)));
  return readdirSync(folder).flatMap((name) => {
    const inode = /^socket:\[(\d+)\]$/.exec(linkOf(join(folder, name)))?.[1];
    return inode === undefined ? [] : [known.get(inode) ?? "not TCP"];
  });
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return ""; // closed meanwhile
  }
}

function connections(pid: number, table: string): [inode: string, text: string][] {
  const lines = readFileSync(`/proc/${pid}/net/${table}`, "utf8").trim().split("\n").slice(1);
  return lines.map((line) => {
    const [, local = "", remote = "", state = "", , , , , , inode = ""] = line.trim().split(/\s+/);
    return [inode, `${table} :${portOf(local)} to :${portOf(remote)} ${STATES[state] ?? state}`];
  });
}

const portOf = (address: string): number => Number.parseInt(address.split(":").at(-1)!, 16);
