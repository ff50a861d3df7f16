/** The packages in a build's own `node_modules`: native code, and what compiles a user's `.ts` plugins. A bundle has this, and not the build. */
import { cpSync, existsSync, realpathSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { filesBelow } from "./files.ts";

const { platform, arch, versions } = process;

/** For each package the files that are needed: of native code only the binary for this platform and this Node.js. */
const CARRIED: Readonly<Record<string, RegExp>> = {
  "uWebSockets.js": new RegExp(`^(uws\\.js|ESM_wrapper\\.mjs|uws_${platform}_${arch}_${versions.modules}\\.node)$`),
  sqlite3: new RegExp(`^(lib/.+\\.js|build/Release/node_sqlite3\\.node|prebuilds/${platform}-${arch}/.+\\.node)$`),
  "node-gyp-build": /^(index|node-gyp-build)\.js$/,
  tsx: /^dist\/.+/,
  esbuild: /^(lib\/main\.js|bin\/.+)$/,
  [`@esbuild/${platform}-${arch}`]: /^(bin\/.+|esbuild\.exe)$/,
};
const ALWAYS = /^(package\.json|licen[cs]e.*|notice.*)$/i;

/** Packages that code of the bundle imports and that are not bundled. The others are imported by these. */
export const EXTERNAL = ["uWebSockets.js", "sqlite3", "tsx", "esbuild"];

/** Copies the packages below `out`. One that is not installed is left out: the bundle runs without it, with a message. */
export function carryPackages(root: string, out: string): string[] {
  const found = Object.entries(CARRIED).flatMap(([name, files]) => {
    const folder = installed(root, name);
    if (folder === null) return [];
    const runs = (path: string) => {
      const file = relative(folder, path).split(sep).join("/");
      return ALWAYS.test(file) || files.test(file);
    };
    copyFiles(folder, join(out, "node_modules", name), runs);
    return [folder];
  });
  return found;
}

/** Where Node finds a package for a file in `folder`: there, or in a folder above. */
export function installed(folder: string, name: string): string | null {
  const path = join(folder, "node_modules", name);
  if (existsSync(path)) return realpathSync(path);
  const above = dirname(folder);
  return above === folder ? null : installed(above, name);
}

/** Copies the files that count, and creates only the folders that contain any. */
export function copyFiles(from: string, to: string, counts: (path: string) => boolean): void {
  for (const path of filesBelow(from))
    if (counts(path)) cpSync(path, join(to, relative(from, path)), { dereference: true });
}
