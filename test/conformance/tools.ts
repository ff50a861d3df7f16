/** The tools that the MCP conformance suite asks for by name, as a folder of plugins: what they give is what the suite describes. */

/** A picture of one pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const base64 = (text: string) => Buffer.from(text).toString("base64");
const picture = { type: "image-data", data: PNG, mediaType: "image/png" };
const sound = { type: "file-data", data: base64("RIFF"), mediaType: "audio/wav" };
const resource = (uri: string, mediaType: string, text: string) => ({
  type: "file-data",
  data: base64(text),
  mediaType,
  filename: uri,
});
const content = (...value: object[]) => `() => (${JSON.stringify({ type: "content", value })})`;

const EXECUTE: Record<string, string> = {
  test_simple_text: '() => "This is a simple text response for testing."',
  test_image_content: content(picture),
  test_audio_content: content(sound),
  test_embedded_resource: content(
    resource("test://embedded-resource", "text/plain", "This is an embedded resource content."),
  ),
  test_multiple_content_types: content(
    { type: "text", text: "Multiple content types test:" },
    picture,
    resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
  ),
  test_error_handling: '() => { throw new Error("This tool intentionally returns an error for testing"); }',
  test_tool_with_progress: `async (_input, { progress }) => {
    for (const done of [0, 50, 100]) {
      progress?.({ progress: done, total: 100 });
      await new Promise((resolve) => setTimeout(resolve, 1100));
    }
    return "done";
  }`,
  test_logging_tool: '(_input, { logger }) => { logger.info("a line of the log"); return "logged"; }',
  test_trigger_tool_change: '() => { globalThis.changeTheTools(); return "soon"; }',
  test_headers: '({ value }) => "given " + value',
  json_schema_2020_12_tool: '() => "ok"',
};

/** Of those that are given anything. */
const PARAMETERS: Record<string, object> = {
  test_headers: { type: "object", properties: { value: { type: "string", "x-mcp-header": "Value" } } },
  json_schema_2020_12_tool: {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: {
      address: {
        $anchor: "addressDef",
        type: "object",
        properties: { street: { type: "string" }, city: { type: "string" } },
      },
    },
    properties: {
      name: { type: "string" },
      address: { $ref: "#/$defs/address" },
      contactMethod: { type: "string", enum: ["phone", "email"] },
      phone: { type: "string" },
      email: { type: "string" },
    },
    allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
    if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
    then: { required: ["phone"] },
    else: { required: ["email"] },
    additionalProperties: false,
  },
};

export const TOOLS = Object.keys(EXECUTE);

/** Contents by path, for a folder of plugins. */
export const PLUGINS: Record<string, string> = {
  "package.json": JSON.stringify({ type: "module" }),
  ...Object.fromEntries(
    TOOLS.map((name) => {
      const parameters = JSON.stringify(PARAMETERS[name] ?? { type: "object" });
      const tool = `{ kind: "tool", name: "${name}", description: "Does ${name}", parameters: ${parameters}, execute: ${EXECUTE[name]} }`;
      return [`tools/${name}.js`, `export default ${tool};\n`];
    }),
  ),
};
