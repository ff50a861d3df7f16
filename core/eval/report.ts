/** Reports the results of the cases: a table for people, XML for CI systems. */
import { counted } from "../lib/counted.ts";
import type { FailedExpectation } from "./expectations.ts";
import type { CaseReport } from "./run.ts";

/** Longest text of an expected or actual value. */
const MAX_TEXT_LENGTH = 300;

const describeFailure = ({ expectation, expected, got }: FailedExpectation): string =>
  oneLine(`${expectation}: expected ${cut(expected)}, got ${cut(got)}`);

const cut = (text: string): string => (text.length > MAX_TEXT_LENGTH ? `${text.slice(0, MAX_TEXT_LENGTH)}…` : text);

/** Makes a text of a model safe for one line of a terminal: without line ends and control characters. */
const oneLine = (text: string): string => text.replace(/\s+/g, " ").replace(/\p{Cc}/gu, "\ufffd");

/** One line per case, followed by a line for each failure, and the totals at the end. */
export function formatTable(reports: readonly CaseReport[]): string {
  const rows = reports.map(({ name, passed, tokens, milliseconds, failures }) => ({
    columns: [oneLine(name), passed ? "passed" : "FAILED", String(tokens ?? "-"), formatTime(milliseconds)],
    failures,
  }));
  const head = ["CASE", "RESULT", "TOKENS", "TIME"];
  const widths = head.map((_, index) =>
    Math.max(...[head, ...rows.map(({ columns }) => columns)].map((columns) => columns[index]!.length)),
  );
  const line = (columns: readonly string[]) =>
    columns.map((text, index) => (index < 2 ? text.padEnd(widths[index]!) : text.padStart(widths[index]!))).join("  ");
  const failed = reports.filter(({ passed }) => !passed).length;
  return [
    line(head),
    ...rows.flatMap(({ columns, failures }) => [
      line(columns),
      ...failures.map((failure) => `  ${describeFailure(failure)}`),
    ]),
    `${counted(reports.length, "cases")}: ${reports.length - failed} passed, ${failed} failed`,
    "",
  ].join("\n");
}

const formatTime = (milliseconds: number): string =>
  milliseconds < 1_000 ? `${milliseconds} ms` : `${(milliseconds / 1_000).toFixed(1)} s`;

/** JUnit's XML, as CI systems understand it. @param suite the name of the file */
export function formatJUnit(suite: string, reports: readonly CaseReport[]): string {
  const failed = reports.filter(({ passed }) => !passed).length;
  const seconds = (reports.reduce((sum, { milliseconds }) => sum + milliseconds, 0) / 1_000).toFixed(3);
  const counts = `tests="${reports.length}" failures="${failed}" errors="0" time="${seconds}"`;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites ${counts}>`,
    `  <testsuite name="${escapeXml(suite)}" ${counts}>`,
    ...reports.map((report) => testCase(suite, report)),
    "  </testsuite>",
    "</testsuites>",
    "",
  ].join("\n");
}

function testCase(suite: string, { name, milliseconds, failures }: CaseReport): string {
  const open = `    <testcase classname="${escapeXml(suite)}" name="${escapeXml(name)}" time="${(milliseconds / 1_000).toFixed(3)}"`;
  if (failures.length === 0) return `${open}/>`;
  const elements = failures.map((failure) => {
    const { expectation, expected, got } = failure;
    const whole = escapeXml(`expected ${expected}\ngot ${got}`);
    return `      <failure type="${escapeXml(expectation)}" message="${escapeXml(describeFailure(failure))}">${whole}</failure>`;
  });
  return [`${open}>`, ...elements, "    </testcase>"].join("\n");
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "\n": "&#10;",
  "\t": "&#9;",
};
// biome-ignore lint/suspicious/noControlCharactersInRegex: XML 1.0 has no form for them
const NOT_XML = /[\u0000-\u0008\u000b-\u001f\ufffe\uffff]/g;

const escapeXml = (text: string): string =>
  text
    .toWellFormed()
    .replace(NOT_XML, "\ufffd")
    .replace(/[&<>"\n\t]/g, (character) => ENTITIES[character]!);
