/** Lists newer versions of the packages of the service, and installs them. */

import { type ChildProcess, spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import type { InstalledUpdates, Update, UpdateList } from "../../generated/types.ts";
import { counted } from "../lib/counted.ts";
import { invalid, ServiceError, unavailable } from "../lib/errors.ts";
import { isNewer } from "../lib/version.ts";
import { proxyVariables } from "../outbound/proxy.ts";

// Runs npm as a child process without a shell, within a time limit, without the secrets of the service.

interface NpmRun {
  readonly folder: string;
  /** The environment of the service; npm gets only the variables that it needs. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Time limit in milliseconds. */
  readonly limit: number;
  /** Ends npm when it aborts. */
  readonly signal: AbortSignal;
}

interface NpmOutcome {
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

const SECTIONS = ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"] as const;

interface Dependency {
  readonly name: string;
  /** The version in package.json: `^1.2.0`, `npm:other@1.2.0`, `file:../x`. */
  readonly wanted: string;
  readonly section: (typeof SECTIONS)[number];
}

/** Dependencies by name. @throws ServiceError `internal` when package.json cannot be read */
async function readDependencies(folder: string): Promise<Map<string, Dependency>> {
  let text: unknown;
  try {
    text = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  } catch (cause) {
    throw new ServiceError("internal", "package.json of the service cannot be read", { cause });
  }
  const found = new Map<string, Dependency>();
  for (const section of SECTIONS) {
    const listed = (text as Record<string, unknown>)[section];
    if (typeof listed !== "object" || listed === null) continue;
    for (const [name, wanted] of Object.entries(listed))
      if (typeof wanted === "string" && !found.has(name)) found.set(name, { name, wanted, section });
  }
  return found;
}

/** The version that is installed, or null. */
async function installedVersion(folder: string, name: string): Promise<string | null> {
  try {
    const { version } = JSON.parse(await readFile(join(folder, "node_modules", name, "package.json"), "utf8"));
    return typeof version === "string" ? version : null;
  } catch {
    return null;
  }
}

const NAME = /^(?:@[a-z0-9~][a-z0-9._~-]*\/)?[a-z0-9~][a-z0-9._~-]*$/i;
const ALIAS = /^npm:((?:@[^/@]+\/)?[^@]+)@/;
/** A version, a range of versions or a tag of the registry. */
const RANGE = /^[\w.*^~<>=|\s+-]*$/;

/** The argument of `npm install` for the newest version; null for a package that does not come from the registry. */
function newestSpecifier({ name, wanted }: Dependency): string | null {
  if (!NAME.test(name)) return null;
  const other = ALIAS.exec(wanted)?.[1];
  if (other !== undefined) return NAME.test(other) ? `${name}@npm:${other}@latest` : null;
  return RANGE.test(wanted) ? `${name}@latest` : null;
}

/** Whether package.json pins one exact version: then an update pins the new one. */
const isExact = ({ wanted }: Dependency): boolean => /^(?:npm:.+@)?=?\d+\.\d+\.\d+(?:-[\w.-]+)?$/.test(wanted);

const LIST_TIMEOUT_MS = 10_000;
const INSTALL_TIMEOUT_MS = 600_000;

interface UpdatesSource {
  /** The folder of the package.json. */
  readonly folder: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether packages may be installed at all. */
  readonly install: boolean;
  readonly logger: Logger;
}

export class Updates {
  readonly #source: UpdatesSource;
  readonly #closing = new AbortController();
  #listing: Promise<UpdateList> | null = null;
  /** What npm said last; null after an installation or a failure. */
  #known: UpdateList | null = null;
  #installing: Promise<unknown> | null = null;

  constructor(source: UpdatesSource) {
    this.#source = source;
  }

  /**
   * What npm said last, while it is asked again for the next call. The first call waits for it.
   *
   * @throws ServiceError `unavailable` when the registry does not answer within 10 s
   */
  async list(): Promise<UpdateList> {
    const listing = this.#refresh();
    listing.catch(() => {});
    return this.#known ?? listing;
  }

  /** The result of `npm outdated`; calls while it runs share the result. */
  #refresh(): Promise<UpdateList> {
    if (this.#listing !== null) return this.#listing;
    const listing = this.#fetchList();
    // It does not count if packages were installed meanwhile.
    const settle = (known: UpdateList | null) => {
      if (this.#listing !== listing) return;
      this.#listing = null;
      this.#known = known;
    };
    this.#listing = listing;
    listing.then(settle, () => settle(null));
    return listing;
  }

  /**
   * Installs the newest version of a package, or of all packages with a newer one.
   *
   * @throws ServiceError `invalid_input` when installing is disabled or package.json has no such package, `conflict` while another
   * installation runs, `internal` when npm fails
   */
  async install(name?: string): Promise<InstalledUpdates> {
    const { install, folder } = this.#source;
    if (!install) throw invalid("installing is switched off: set updates.install: true in the manifest");
    const chosen = name === undefined ? undefined : findDependency(await readDependencies(folder), name);
    if (this.#installing !== null) throw new ServiceError("conflict", "another installation is running");
    const work = this.#install(chosen).finally(() => {
      this.#installing = null;
      this.#listing = this.#known = null;
    });
    this.#installing = work;
    return work;
  }

  /** Ends npm if it runs. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled([this.#listing, this.#installing]);
  }

  async #fetchList(): Promise<UpdateList> {
    const dependencies = await readDependencies(this.#source.folder);
    if (dependencies.size === 0) return updateList([]);
    const outcome = await this.#npm(["outdated", "--json"], LIST_TIMEOUT_MS);
    // Exit code 1 means that something is outdated.
    const updates = outcome.code > 1 ? null : parseUpdates(outcome, dependencies);
    if (updates === null) throw this.#unreachable(outcome);
    return updateList(updates);
  }

  async #install(chosen: Dependency | undefined): Promise<InstalledUpdates> {
    const { folder, logger } = this.#source;
    const wanted = chosen === undefined ? await this.#outdated() : [chosen];
    const before = await Promise.all(wanted.map(({ name }) => installedVersion(folder, name)));
    for (const exact of [true, false]) {
      const group = wanted.filter((dependency) => isExact(dependency) === exact).map((each) => newestSpecifier(each)!);
      if (group.length === 0) continue;
      const outcome = await this.#npm(
        ["install", "--json", "--no-audit", "--no-fund", ...(exact ? ["--save-exact"] : []), "--", ...group],
        INSTALL_TIMEOUT_MS,
      );
      if (outcome.code !== 0) throw this.#failed(outcome);
    }
    const packages = [];
    for (const [index, { name }] of wanted.entries()) {
      const [from, to] = [before[index], await installedVersion(folder, name)];
      if (to !== null && to !== from) packages.push({ name, ...(from != null && { from }), to });
    }
    logger.info({ packages }, "packages were installed");
    const message =
      packages.length === 0
        ? "nothing to install: all is up to date"
        : `installed ${counted(packages.length, "packages")}: restart the service to use them`;
    return { message, packages };
  }

  async #outdated(): Promise<Dependency[]> {
    const [dependencies, { updates }] = [await readDependencies(this.#source.folder), await this.#refresh()];
    return updates
      .map(({ name }) => dependencies.get(name)!)
      .filter((dependency) => newestSpecifier(dependency) !== null);
  }

  #npm(parameters: readonly string[], limit: number): Promise<NpmOutcome> {
    const { folder, env } = this.#source;
    return runNpm(parameters, { folder, env, limit, signal: this.#closing.signal });
  }

  #unreachable(outcome: NpmOutcome): ServiceError {
    const { code, summary } = readNpmError(outcome);
    this.#source.logger.warn({ code, summary }, "npm outdated failed");
    return unavailable(`the versions of packages cannot be looked up: npm says ${code}`);
  }

  #failed(outcome: NpmOutcome): ServiceError {
    const { code, summary } = readNpmError(outcome);
    this.#source.logger.error({ code, summary }, "npm install failed");
    return new ServiceError("internal", `npm install failed: ${code}; the log says more`);
  }
}

function updateList(updates: Update[]): UpdateList {
  const count = updates.length;
  const message = count === 0 ? "all packages are up to date" : `${counted(count, "packages")} can be updated`;
  return { hasUpdates: count > 0, updates, count, message };
}

/** @throws ServiceError `invalid_input` */
function findDependency(dependencies: ReadonlyMap<string, Dependency>, name: string): Dependency {
  const shown = JSON.stringify(name.slice(0, 214));
  const found = dependencies.get(name);
  if (found === undefined) throw invalid(`packageName must be a package that package.json names, not ${shown}`);
  if (newestSpecifier(found) === null)
    throw invalid(`packageName: ${shown} does not come from the registry: update it by hand`);
  return found;
}

/** Parses npm's list; null when the output is not a list of packages. */
function parseUpdates({ stdout }: NpmOutcome, dependencies: ReadonlyMap<string, Dependency>): Update[] | null {
  const said = parseObject(stdout.trim() === "" ? "{}" : stdout);
  if (said === null || "error" in said) return null;
  const updates = new Map<string, Update>();
  for (const [key, value] of Object.entries(said)) {
    // An alias appears as `name:other@1.2.0`, and a package that is installed more than once as a list.
    const name = key.split(":", 1)[0]!;
    const section = dependencies.get(name)?.section;
    const { current: installed, latest } = ([value].flat()[0] ?? {}) as { current?: string; latest?: string };
    if (section === undefined || section === "devDependencies" || !isNewer(latest ?? "", installed ?? "")) continue;
    updates.set(name, {
      name,
      ...(installed !== undefined && { installed }),
      latest: latest!,
      type: changeType(installed, latest!),
      packageJson: section,
    });
  }
  return [...updates.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

const PARTS = ["major", "minor", "patch"] as const;

/** The first part of the versions that differs; `latest` when they cannot be compared. */
function changeType(installed: string | undefined, latest: string): Update["type"] {
  const [old, fresh] = [installed ?? "", latest].map((version) => /^(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1));
  if (old === undefined || fresh === undefined) return "latest";
  return PARTS[old.findIndex((part, index) => part !== fresh[index])] ?? "latest";
}

function readNpmError({ stdout, stderr, code }: NpmOutcome): { code: string; summary: string } {
  const error = parseObject(stdout)?.error as { code?: unknown; summary?: unknown } | undefined;
  const named = typeof error?.code === "string" && /^\w{1,40}$/.test(error.code) ? error.code : `exit code ${code}`;
  const summary = typeof error?.summary === "string" && error.summary !== "" ? error.summary : stderr;
  return { code: named, summary: summary.slice(0, 2_000) };
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
