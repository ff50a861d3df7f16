/**
 * The command `dev`: serves in a child process. A change of the manifest is reloaded there; if that fails, the child continues as before
 * and says why. A change of a plugin, of the source or of `--env-file` restarts it, and so does a change of the manifest that cannot be
 * reloaded; if the new process would not start, the child continues as before too. Node's own `--watch` sees only modules, and loses a file
 * whose editor saves by renaming, so folders are watched here.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { type FSWatcher, watch } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { loadManifest } from "../manifest/load.ts";
import { pluginFolders } from "../registry/load.ts";
import { foldersIn, SOURCE_FILE } from "../registry/sources.ts";
import type { Invocation } from "./invocation.ts";
import { RELOAD_REQUEST, type ReloadAnswer } from "./serve.ts";

/** Editors write a file in several steps: the service restarts when nothing has changed for this long. */
const RESTART_DELAY_MS = 100;
/** Delay before a second signal is sent, which ends a service that still has open streams. */
const SECOND_SIGNAL_DELAY_MS = 1_200;

interface Watched {
  folder: string;
  /** Whether a change of the file with this name in the folder matters. */
  counts(name: string): boolean;
  /** Whether a change in this folder requires a restart. */
  restarts: boolean;
}

/** Runs until a signal. */
export async function dev(invocation: Invocation): Promise<number> {
  let stopping = false;
  let child = spawnServe(invocation);
  let watchers: FSWatcher[] = [];
  let timer: NodeJS.Timeout | undefined;
  /** Whether a change since the last restart or reload requires a restart. */
  let needsRestart = false;
  /** Restarts and reloads run one after the other. */
  let updates = Promise.resolve();

  const observe = async () => {
    const places = await watched(invocation);
    for (const watcher of watchers) watcher.close();
    watchers = places.map(({ folder, counts, restarts }) =>
      watch(folder, (_event, name) => {
        if (name === null || !counts(name)) return;
        needsRestart ||= restarts;
        clearTimeout(timer);
        timer = setTimeout(() => update(join(folder, name)), RESTART_DELAY_MS);
      }),
    );
  };
  const update = (changed: string) => {
    const restarts = needsRestart;
    needsRestart = false;
    updates = updates.then(async () => {
      if (stopping) return;
      process.stdout.write(`${changed} has changed\n`);
      if (!restarts && (await reloadChild(child))) return;
      if (isRunning(child) && !(await wouldStart(invocation))) {
        process.stdout.write("the service goes on as it was\n");
        // What has changed is not in it: no reload of the manifest brings that.
        needsRestart = true;
        return;
      }
      await stopChild(child);
      if (stopping) return;
      child = spawnServe(invocation);
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
      void updates.then(() => stopChild(child)).then(() => done(0));
    };
    process.on("SIGINT", stop);
    process.on("SIGTERM", stop);
  });
}

/** Starts the same command line with `serve` instead of `dev`. The child reads the files of `--env-file` itself. */
function spawnServe({ inherited }: Invocation): ChildProcess {
  const [script = "", ...words] = process.argv.slice(1);
  const command = [...process.execArgv, script, ...words.map((word) => (word === "dev" ? "serve" : word))];
  return spawn(process.execPath, command, { stdio: ["inherit", "inherit", "inherit", "ipc"], env: inherited });
}

const isRunning = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode === null && signalCode === null;

/** Whether a process would start with what has changed; it says what is wrong. */
function wouldStart({ config, plugins, envFiles = [], inherited }: Invocation): Promise<boolean> {
  const options = [
    ...["--config", config],
    ...plugins.flatMap((folder) => ["--plugins", folder]),
    ...envFiles.flatMap((file) => ["--env-file", file]),
  ];
  const command = [...process.execArgv, process.argv[1]!, "check", ...options];
  return new Promise((done) => {
    execFile(process.execPath, command, { env: inherited, maxBuffer: Number.POSITIVE_INFINITY }, (error, _, said) => {
      // Of warnings the service itself tells.
      if (error !== null) process.stderr.write(said || `${error.message}\n`);
      done(error === null);
    });
  });
}

/** False when the child must be restarted: it does not run, or cannot apply the change. */
function reloadChild(child: ChildProcess): Promise<boolean> {
  if (!child.connected) return Promise.resolve(false);
  return new Promise((done) => {
    const ended = () => done(false);
    child.once("exit", ended);
    child.once("message", (answer) => {
      child.off("exit", ended);
      done(!(answer as ReloadAnswer).needsRestart);
    });
    child.send(RELOAD_REQUEST, (error) => error !== null && done(false));
  });
}

/** Stops a child in order, with a second signal if that takes long. */
function stopChild(child: ChildProcess): Promise<void> {
  if (!isRunning(child)) return Promise.resolve();
  return new Promise((done) => {
    const again = setTimeout(() => child.kill("SIGTERM"), SECOND_SIGNAL_DELAY_MS);
    child.once("exit", () => {
      clearTimeout(again);
      done();
    });
    child.kill("SIGTERM");
  });
}

/** The folders of the manifest and of `--env-file`, only for these files; the folders of plugins and of the source as a whole. */
async function watched({ config, plugins, envFiles = [] }: Invocation): Promise<Watched[]> {
  const { manifest, folder } = await loadManifest(config, process.env);
  const roots = [
    ...["..", "../../generated"].map((path) => fileURLToPath(new URL(path, import.meta.url))),
    ...plugins.map((path) => resolve(path)),
    ...pluginFolders(folder, manifest?.plugins),
  ];
  const only = (path: string, restarts: boolean): Watched => {
    const file = resolve(path);
    return { folder: dirname(file), counts: (name) => name === basename(file), restarts };
  };
  return [
    only(config, false),
    ...envFiles.map((path) => only(path, true)),
    ...[...new Set(roots.flatMap(foldersIn))].map((path) => ({
      folder: path,
      counts: (name: string) => SOURCE_FILE.test(name),
      restarts: true,
    })),
  ];
}
