/** Maintenance of the service: updates of its packages, and its `.env` file. Each part is loaded with the first request for it. */
import type { Logger } from "pino";
import type { EnvironmentFile } from "./environment-file.ts";
import type { Updates } from "./updates.ts";

interface PlatformSource {
  /** The folder of the manifest. */
  readonly folder: string;
  /** The folder of the package.json whose packages are updated. */
  readonly project: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether packages may be installed. */
  readonly install: boolean;
  readonly logger: Logger;
  /** Called when the service ends. */
  onClose(callback: () => Promise<void>): void;
}

export class Platform {
  readonly #source: PlatformSource;
  #updates: Promise<Updates> | null = null;
  #environmentFile: Promise<EnvironmentFile> | null = null;

  constructor(source: PlatformSource) {
    this.#source = source;
  }

  updates(): Promise<Updates> {
    this.#updates ??= this.#openUpdates();
    return this.#updates;
  }

  environmentFile(): Promise<EnvironmentFile> {
    this.#environmentFile ??= import("./environment-file.ts").then(
      ({ EnvironmentFile }) => new EnvironmentFile(this.#source.folder),
    );
    return this.#environmentFile;
  }

  async #openUpdates(): Promise<Updates> {
    const source = this.#source;
    const { project: folder, env, logger } = source;
    const { Updates } = await import("./updates.ts");
    const updates = new Updates({
      folder,
      env,
      get install() {
        return source.install;
      },
      logger,
    });
    source.onClose(() => updates.close());
    return updates;
  }
}
