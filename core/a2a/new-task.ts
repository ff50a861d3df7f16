/** Turns an A2A message into the input of an agent. */
import { randomUUID } from "node:crypto";
import type { SendMessageRequest } from "@a2a-js/sdk";
import { Message as WireMessage } from "@a2a-js/sdk";
import type { TaskBody } from "../agents/agent.ts";
import { pushUiMessage } from "../agents/prompt/ui-input.ts";
import { invalid } from "../lib/errors.ts";
import type { Message, Part } from "./task.ts";
import type { NewTask } from "./tasks.ts";

/** @throws ServiceError `invalid_input` for parts that agents do not take */
export function newTask({ message, metadata }: SendMessageRequest): NewTask {
  const { taskId, contextId, ...said } = WireMessage.toJSON(message!) as Message;
  const context = contextId || randomUUID();
  const input = { role: "user", parts: said.parts.map(inputPart) };
  // Checked here already, so that errors name the fields of the client's message.
  pushUiMessage([], input, "params.message");
  const options: TaskBody["options"] = { memory: { conversationId: context } };
  if (metadata !== undefined) options.context = metadata;
  return { message: said, contextId: context, body: { input: [input], options } };
}

function inputPart(part: Part, index: number): object {
  if (part.text !== undefined) return { type: "text", text: part.text };
  const { raw, url, filename } = part;
  if (raw === undefined && url === undefined) return { type: "text", text: JSON.stringify(part.data ?? null) };
  const mediaType = part.mediaType?.split(";", 1)[0]?.trim();
  const named = filename === undefined ? {} : { filename };
  if (!mediaType && (raw !== undefined || !/^data:/i.test(url!)))
    throw invalid(`params.message.parts[${index}]: a file needs its media type`);
  return { type: "file", url: url ?? `data:${mediaType};base64,${raw}`, mediaType, ...named };
}
