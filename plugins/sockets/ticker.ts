import { defineSocket } from "#plugin";

export default defineSocket({
  path: "/ws/ticker",
  open: (peer) => peer.send({ hello: peer.user }),
  message: (peer, data) => peer.send(data),
});
