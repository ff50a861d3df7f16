/** An example beside service.yaml: a WebSocket that greets its user and echoes every message. service.yaml uses it. */
import { defineSocket } from "#plugin";

export default defineSocket({
  path: "/ws/ticker",
  open: (peer) => peer.send({ hello: peer.user }),
  message: (peer, data) => peer.send(data),
});
