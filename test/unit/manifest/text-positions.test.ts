import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseManifest } from "../../../core/manifest/load.ts";

/** Values of `name`; the issue is asked for at the character @ of the value. */
const TEXTS: Record<string, string> = {
  plain: "name: a b {{ @x }} c",
  "plain over two lines": "name: a b\n   c  d @x\n",
  "in single quotes": "name: 'it''s {{ ''a'' @x }}'",
  "in single quotes, over lines with an empty one": "name: 'a\n\n   b\n   c @x'",
  "in double quotes": 'name: "a {{ \\"b\\" @x }}"',
  "in double quotes, with escapes": 'name: "a\\n\\x41\\u00e9\\U0001F600 \\\n   b\\t@x"',
  "in double quotes, over two lines": 'name: "a b\n   c @x"',
  "a literal block": "name: |\n  a\n    b {{\n\n      @x\n  }}\n",
  "a folded block": "name: >-\n  a\n  b\n\n  c @x\n",
  "a literal block whose indentation is given": "name: |2\n    a\n   b @x\n",
  "in a flow map": "description: d\nx-y: { z: 1 }\nname: \"{{ 'a' + @x }}\"",
  "with CRLF": "name: |\r\n  a\r\n  b @x\r\n",
  "after an emoji": "name: 😀 @x",
};

describe("a problem inside a text of the manifest has the line and column of its character", () => {
  for (const [name, yaml] of Object.entries(TEXTS)) {
    it(`the text is written ${name}`, () => {
      const loaded = parseManifest(yaml, { file: "service.yaml", env: {} });
      const value = (loaded.document as { name: string }).name;
      const { line, column } = loaded.issueAt(["name"], "here", "error", value.indexOf("@"));
      const rows = yaml.split("\n");
      const row = rows.findIndex((text) => text.includes("@"));
      assert.deepEqual([line, column], [row + 1, rows[row]!.indexOf("@") + 1]);
    });
  }

  it("in a text with a variable of the environment it is that of the key: the characters are not in the file", () => {
    const yaml = `version: "1"\nname: "\${NAME} @x"`;
    const loaded = parseManifest(yaml, { file: "service.yaml", env: { NAME: "abc" } });
    const { line, column } = loaded.issueAt(["name"], "here", "error", 4);
    assert.deepEqual([line, column], [2, 1]);
  });
});
