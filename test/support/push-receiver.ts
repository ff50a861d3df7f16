/** A receiver of A2A push notifications: a server of its own, which checks signatures as a stranger would. */
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { createRemoteJWKSet, type JWTPayload, jwtVerify } from "jose";
import type { Loose } from "./served-upstream.ts";

interface Told {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  readonly body: Loose;
  readonly url: string;
}

/**
 * @param answer the status of the reply to a request, by its number from 0; null: there is none
 */
export async function pushReceiver(
  test: Pick<TestContext, "after">,
  answer: (index: number) => number | null = () => 204,
) {
  const told: Told[] = [];
  let look = () => {};
  const server = createServer(async (request, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const text = Buffer.concat(pieces).toString();
    const status = answer(told.length);
    told.push({ headers: request.headers, text, body: JSON.parse(text), url: request.url! });
    look();
    if (status !== null) response.writeHead(status, { location: "/elsewhere" }).end("x".repeat(100_000));
  });
  // It leaves connections open, and says so.
  server.keepAliveTimeout = 600_000;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?key=k`;
  return {
    url,
    told,
    connections: () =>
      new Promise<number>((resolve, reject) =>
        server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
      ),
    /** What has been told once there are so many of them. */
    async when(count: number): Promise<readonly Told[]> {
      while (told.length < count)
        await new Promise<void>((resolve) => {
          look = resolve;
        });
      return told;
    },
  };
}

/** The claims of a notification whose signature is that of the service, over this very body. */
export async function checkedClaims(service: string, { headers, text }: Told, audience: string): Promise<JWTPayload> {
  const keys = createRemoteJWKSet(new URL(`${service}/.well-known/jwks.json`));
  const jwt = headers["x-a2a-notification-jwt"] as string;
  const { payload } = await jwtVerify(jwt, keys, { audience, maxTokenAge: "5m", algorithms: ["ES256"] });
  const digest = createHash("sha256").update(text).digest("hex");
  if (payload.request_body_sha256 !== digest) throw new Error("the signature is over another body");
  return payload;
}
