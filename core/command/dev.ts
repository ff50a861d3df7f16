/**
 * The command `dev`: serves in a child process, and anew whenever the manifest, a plugin or the source changes. Node's own
 * `--watch` sees only modules, and loses a file whose editor saves by renaming; so folders are watched here.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { type FSWatcher, readdirSync, watch } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { loadManifest } from "../manifest/load.ts";
import { pluginFolders } from "../registry/discover.ts";
import type { Invocation } from "./invocation.ts";

/** Editors write a file in several steps: the service restarts when nothing has changed for this long. */
const RESTART_DELAY_MS = 100;
/** When a second signal is sent, which ends a service that still has open streams. */
const SECOND_SIGNAL_DELAY_MS = 1_200;
const SOURCE_FILE = /^[^.].*\.(m?[jt]s|json)$/;

interface Watched {
  folder: string;
  /** Whether a change of this name in the folder counts. */
  counts(name: string): boolean;
}

/** Stays until a signal. */
export async function dev(invocation: Invocation): Promise<number> {
  let stopping = false;
  let child = spawnServe();
  let watchers: FSWatcher[] = [];
  let timer: NodeJS.Timeout | undefined;
  /** Restarts run one after the other. */
  let restarts = Promise.resolve();

  const observe = async () => {
    const places = await watched(invocation);
    for (const watcher of watchers) watcher.close();
    watchers = places.map(({ folder, counts }) =>
      watch(folder, (_event, name) => {
        if (name === null || !counts(name)) return;
        clearTimeout(timer);
        timer = setTimeout(() => restart(join(folder, name)), RESTART_DELAY_MS);
      }),
    );
  };
  const restart = (changed: string) => {
    restarts = restarts.then(async () => {
      await stopChild(child);
      if (stopping) return;
      process.stdout.write(`${changed} has changed\n`);
      child = spawnServe();
      await observe();
    });
  };
  await observe();

  return new Promise((done) => {
    const stop = () => {
      if (stopping) return;
      stopping = true;
      clearTimeout(timer);
      for (const watcher of watchers) watcher.close();
      void restarts.then(() => stopChild(child)).then(() => done(0));
    };
    process.on("SIGINT", stop);
    process.on("SIGTERM", stop);
  });
}

/** The same command line with `serve` instead of `dev`. */
function spawnServe(): ChildProcess {
  const [script = "", ...words] = process.argv.slice(1);
  const command = [...process.execArgv, script, ...words.map((word) => (word === "dev" ? "serve" : word))];
  return spawn(process.execPath, command, { stdio: "inherit" });
}

/** Stops a child in order, with a second signal if it takes long. */
function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((done) => {
    const again = setTimeout(() => child.kill("SIGTERM"), SECOND_SIGNAL_DELAY_MS);
    child.once("exit", () => {
      clearTimeout(again);
      done();
    });
    child.kill("SIGTERM");
  });
}

/** The manifest's own folder for its name alone; the folders of plugins and of the source, with all that is in them. */
async function watched({ config, plugins }: Invocation): Promise<Watched[]> {
  const { manifest, folder } = await loadManifest(config, process.env);
  const roots = [
    ...["..", "../../generated"].map((path) => fileURLToPath(new URL(path, import.meta.url))),
    ...plugins.map((path) => resolve(path)),
    ...pluginFolders(folder, manifest?.plugins),
  ];
  const file = resolve(config);
  return [
    { folder: dirname(file), counts: (name: string) => name === basename(file) },
    ...[...new Set(roots.flatMap(foldersIn))].map((path) => ({
      folder: path,
      counts: (name: string) => SOURCE_FILE.test(name),
    })),
  ];
}

/** A folder and all below it; an empty list when it does not exist. */
function foldersIn(root: string): string[] {
  try {
    const inside = readdirSync(root, { withFileTypes: true }).filter(
      (entry) => entry.isDirectory() && entry.name !== "node_modules" && !entry.name.startsWith("."),
    );
    return [root, ...inside.flatMap((entry) => foldersIn(join(root, entry.name)))];
  } catch {
    return [];
  }
}
