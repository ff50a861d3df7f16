/** Lists the packages in a build: their licences for people, and a bill of materials (CycloneDX) for programs. */
import { readdirSync, readFileSync, realpathSync } from "node:fs";
import { join, resolve, sep } from "node:path";

interface Package {
  name: string;
  version: string;
  license: string;
  /** The texts of its licence files. */
  texts: string[];
  /** The value in the lock file: `sha512-BASE64`. */
  integrity: string | undefined;
}

const LICENCE_FILE = /^(licen[cs]e|notice)/i;
const NODE_MODULES = `${sep}node_modules${sep}`;

/** The folders of the packages to which files belong. @param inputs absolute paths, or relative to `root` */
export function packageFolders(root: string, inputs: readonly string[]): string[] {
  const folders = inputs.flatMap((input) => {
    const path = resolve(root, input);
    const at = path.lastIndexOf(NODE_MODULES);
    if (at === -1) return [];
    const start = at + NODE_MODULES.length;
    const parts = path.slice(start).split(sep);
    return [path.slice(0, start) + parts.slice(0, parts[0]!.startsWith("@") ? 2 : 1).join(sep)];
  });
  return [...new Set(folders)];
}

export function readPackages(root: string, folders: readonly string[]): Package[] {
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as {
    packages: Record<string, { integrity?: string }>;
  };
  const modules = realpathSync(join(root, "node_modules"));
  const packages = folders.map((folder): Package => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const files = readdirSync(folder).filter((file) => LICENCE_FILE.test(file));
    const place = `node_modules${realpathSync(folder).slice(modules.length)}`.split(sep).join("/");
    return {
      name,
      version,
      license: String(license ?? "see its licence"),
      texts: files.map((file) => readFileSync(join(folder, file), "utf8").trim()),
      integrity: lock.packages[place]?.integrity,
    };
  });
  const byName = new Map(packages.map((each) => [`${each.name}@${each.version}`, each]));
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each);
}

export function licenceText(packages: readonly Package[]): string {
  const list = packages.map(({ name, version, license }) => `${name} ${version}: ${license}`).join("\n");
  const texts = packages.map(({ name, version, license, texts: own }) =>
    [`${"-".repeat(80)}\n${name} ${version} (${license})`, ...own].join("\n\n"),
  );
  return `This build holds these packages, each under its own licence.\n\n${list}\n\n${texts.join("\n\n")}\n`;
}

/** CycloneDX 1.5. The same build gives the same text, so it has no time and no serial number. */
export function billOfMaterials(self: { name: string; version: string; license: string }, all: readonly Package[]) {
  const purl = (name: string, version: string) => `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const component = ({ name, version, license, integrity }: Package) => ({
    type: "library",
    "bom-ref": `${name}@${version}`,
    name,
    version,
    licenses: [{ expression: license }],
    purl: purl(name, version),
    ...(integrity?.startsWith("sha512-") && {
      hashes: [{ alg: "SHA-512", content: Buffer.from(integrity.slice(7), "base64").toString("hex") }],
    }),
  });
  const { name, version, license } = self;
  const own = { type: "application", "bom-ref": `${name}@${version}`, name, version, purl: purl(name, version) };
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: { component: { ...own, licenses: [{ expression: license }] } },
    components: all.map(component),
  };
}
