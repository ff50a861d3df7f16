/** Plugin folders made for one test, outside the project. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The example plugins, which stand beside the shipped manifest. */
export const EXAMPLES = fileURLToPath(new URL("../../plugins", import.meta.url));

/** Writes `files` (contents by relative path) to a new folder, which goes when the test ends. */
export function pluginFolder(test: { after(end: () => void): void }, files: Record<string, string>): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "penstock-plugins-")));
  test.after(() => rmSync(root, { recursive: true, force: true }));
  for (const [path, contents] of Object.entries(files)) {
    const file = join(root, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, contents);
  }
  return root;
}
