/** OpenAI's Responses over a WebSocket, at the path of `POST /v1/responses`. */
import type { Service } from "../../app/service.ts";
import type { SocketRoute } from "../../http/socket.ts";
import { principalOf } from "../../identity/principal.ts";
import { openaiErrors } from "../../openai/errors.ts";
import { openResponsesSocket } from "../../openai/socket.ts";

export const RESPONSES_SOCKET: SocketRoute<Service> = {
  operation: "openai.responsesSocket",
  path: "/v1/responses",
  group: "execution",
  summary: "Responses, one after the other: each message `response.create` is answered with its events",
  errors: openaiErrors,
  check(asked, { isolated }) {
    principalOf(asked, isolated);
  },
  open: openResponsesSocket,
};
