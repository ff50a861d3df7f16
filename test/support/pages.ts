/** Reads pages as a browser and a shell would. */
import { spawnSync } from "node:child_process";

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };

const unescapeHtml = (text: string) => text.replace(/&(amp|lt|gt|quot|#39);/g, (_all, name: string) => ENTITIES[name]!);

/** The words that a shell makes of each command of the page, `curl` itself left out. `$TOKEN` is `secret`. */
export function shellWords(page: string): string[][] {
  const blocks = [...page.matchAll(/<pre>([\s\S]*?)<\/pre>/g)].map((match) => unescapeHtml(match[1]!));
  return blocks.map((command) => {
    const script = `curl() { for word in "$@"; do printf '%s\\0' "$word"; done; }; TOKEN=secret; ${command}`;
    const { stdout, status, stderr } = spawnSync("sh", ["-c", script], { encoding: "utf8" });
    if (status !== 0) throw new Error(`the shell refuses ${command}: ${stderr}`);
    return stdout.split("\0").slice(0, -1);
  });
}

export interface FetchedPage {
  status: number;
  type: string;
  text: string;
  /** Every `href` and `src`, resolved against the page's address; data URLs left out. */
  links: string[];
  header(name: string): string;
}

export async function fetchPage(address: string): Promise<FetchedPage> {
  const reply = await fetch(address);
  const text = await reply.text();
  const addresses = [...text.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => unescapeHtml(match[1]!));
  const links = addresses.filter((link) => !link.startsWith("data:")).map((link) => new URL(link, reply.url).href);
  const header = (name: string) => reply.headers.get(name) ?? "";
  return { status: reply.status, type: header("content-type"), text, links, header };
}
