/**
 * A headless Chromium for tests of what runs in browsers: the one that PENSTOCK_CHROMIUM names, or Debian's package `chromium`.
 */
import { accessSync, constants } from "node:fs";
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** For hangs only: to start, and to show what a test waits for. */
const HANG_MS = 240_000;

/** For `skip` of a test: why there is no browser, which is said loudly too, or false where there is one. */
export function browserMissing(warn: (line: string) => void = console.error): string | false {
  if (chromiumPath() !== null) return false;
  const reason = "no Chromium on this machine: apt-get install chromium, or set PENSTOCK_CHROMIUM=/path/to/chromium";
  warn(`\n*** NOT TESTED IN A BROWSER: ${reason}\n`);
  return reason;
}

/** What PENSTOCK_CHROMIUM names counts as it stands: a wrong path fails the tests. */
function chromiumPath(): string | null {
  const named = process.env.PENSTOCK_CHROMIUM;
  if (named !== undefined && named !== "") return named;
  return PLACES.find(isExecutable) ?? null;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Starts a browser, which ends with the test. Takes a second or so: share one per file. */
export async function startBrowser(
  test: { after(callback: () => Promise<void>): void },
  options: readonly string[] = [],
): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: chromiumPath() ?? PLACES[0],
    timeout: HANG_MS,
    // Chromium's own sandbox needs privileges that containers lack; the pages are ours.
    args: ["--no-sandbox", "--disable-dev-shm-usage", ...options],
  });
  test.after(() => browser.close());
  return browser;
}

export interface OpenedPage {
  page: Page;
  context: BrowserContext;
  /** What the page complained of: errors of scripts, refusals by the content security policy, `console.error`. */
  complaints: string[];
}

/** A page with cookies and storage of its own. */
export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<OpenedPage> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(HANG_MS);
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  return { page, context, complaints };
}
