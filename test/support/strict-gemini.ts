/** Gemini's streamGenerateContent with Google's own rules: order and number of function responses, thought signatures, names. */
import { type Answer, counter, type Dialect, event, halves, type Json, Refusal } from "./strict-upstream.ts";

function refuse(message: string, status = 400, name = "INVALID_ARGUMENT"): never {
  throw new Refusal(status, message, { error: { code: status, message, status: name } });
}

const NAME = /^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$/;
const PATH = /^\/v1beta\/models\/([^/:]+):streamGenerateContent\?alt=sse$/;
/** What Google accepts in place of a signature that was lost. */
const NO_SIGNATURE = "skip_thought_signature_validator";
const MIME_TYPES =
  /^(?:image\/(?:png|jpeg|webp|gif|heic|heif)|application\/pdf|text\/(?:plain|csv|html|css|xml|rtf|markdown)|audio\/(?:wav|mp3|mpeg|aiff|aac|ogg|flac)|video\/(?:mp4|mpeg|webm|mov|avi|wmv|3gpp))$/;

export function gemini(): Dialect {
  const newId = counter("");
  const signatures = new Set([NO_SIGNATURE]);
  return {
    base: "/v1beta",
    check(body, path) {
      const model = PATH.exec(path)?.[1];
      if (model === undefined) refuse(`Path not found: ${path}`, 404, "NOT_FOUND");
      (body.tools ?? []).forEach((tool: Json, index: number) => {
        (tool.functionDeclarations ?? []).forEach(({ name }: Json, position: number) => {
          if (!NAME.test(name))
            refuse(
              `* GenerateContentRequest.tools[${index}].function_declarations[${position}].name: Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.\n`,
            );
        });
      });
      checkContents(body.contents, signatures);
      if (model.startsWith("gemini-3")) requireSignatures(body.contents);
    },
    events: (answer) => answerEvents(answer, newId, signatures),
  };
}

function checkContents(contents: Json[], signatures: ReadonlySet<string>): void {
  if (!Array.isArray(contents) || contents.length === 0)
    refuse("* GenerateContentRequest.contents: contents is not specified\n");
  contents.forEach(({ role, parts }, index) => {
    if (role !== "user" && role !== "model") refuse("Please use a valid role: user, model.");
    if (parts.length === 0)
      refuse(`* GenerateContentRequest.contents[${index}].parts: contents.parts must not be empty.\n`);
    for (const part of parts) checkPart(part, signatures);
    const calls = callsIn(contents[index]);
    const responses = responsesIn(contents[index]);
    const before = contents[index - 1];
    if (calls > 0 && before?.role !== "user")
      refuse(
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
      );
    if (responses > 0 && callsIn(before) === 0)
      refuse("Please ensure that function response turn comes immediately after a function call turn.");
    if (responses > 0 || callsIn(before) > 0) {
      if (responses !== callsIn(before))
        refuse(
          "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
        );
    }
  });
  if (contents.at(-1).role !== "user")
    refuse("Please ensure that single turn requests end with a user role or the role field is empty.");
}

const callsIn = (content: Json): number => (content?.parts ?? []).filter((part: Json) => part.functionCall).length;
const responsesIn = (content: Json): number =>
  (content?.parts ?? []).filter((part: Json) => part.functionResponse).length;

function checkPart(part: Json, signatures: ReadonlySet<string>): void {
  if (part.thoughtSignature !== undefined && !signatures.has(part.thoughtSignature))
    refuse("Corrupted thought signature.");
  const { inlineData } = part;
  if (inlineData && !MIME_TYPES.test(inlineData.mimeType)) refuse(`Unsupported MIME type: ${inlineData.mimeType}`);
  const name = part.functionCall?.name ?? part.functionResponse?.name;
  if (name !== undefined && !NAME.test(name)) refuse(`Invalid function name: ${name}`);
}

/** Since the user last spoke, the first function call of every answer is signed. */
function requireSignatures(contents: Json[]): void {
  const spoken = contents.findLastIndex(({ role, parts }) => role === "user" && parts.some((part: Json) => part.text));
  contents.forEach(({ parts }, index) => {
    if (index < spoken) return;
    const first = parts.find((part: Json) => part.functionCall);
    if (first === undefined || first.thoughtSignature !== undefined) return;
    refuse(
      `Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call \`default_api:${first.functionCall.name}\` , position ${index + 1}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.`,
    );
  });
}

function answerEvents(
  { thought, text, calls = [], ended = "STOP" }: Answer,
  newId: () => string,
  signatures: Set<string>,
): string[] {
  const sign = () => {
    const thoughtSignature = `sig${newId()}`;
    signatures.add(thoughtSignature);
    return { thoughtSignature };
  };
  const parts: Json[] = [];
  if (thought !== undefined) parts.push(...halves(thought).map((piece) => ({ text: piece, thought: true })));
  if (text !== undefined) {
    parts.push(...halves(text).map((piece) => ({ text: piece })));
    // An answer without calls is signed at its end, in a part without text.
    if (calls.length === 0) parts.push({ text: "", ...sign() });
  }
  // Of parallel calls only the first is signed.
  calls.forEach(({ name, input = {} }, index) => {
    parts.push({ functionCall: { name, args: input }, ...(index === 0 && sign()) });
  });
  const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 };
  const chunk = (part: Json, last: boolean) => ({
    candidates: [{ content: { parts: [part], role: "model" }, index: 0, ...(last && { finishReason: ended }) }],
    usageMetadata,
    modelVersion: "gemini",
    responseId: "r1",
  });
  return parts.map((part, index) => event(chunk(part, index === parts.length - 1)));
}
