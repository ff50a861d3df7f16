/** Calls to the service that the page came from, wherever a proxy has put it. */
import { readEvents } from "./event-stream.js";

/** @import { Credentials } from "./credentials.js" */

/** @typedef {{ body?: unknown, signal?: AbortSignal, headers?: Record<string, string> }} Options */

/** An error reply of the service. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {Headers} headers
   */
  constructor(status, message, headers) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** The address of the service: these files lie one segment below it. */
export const serviceRoot = () => new URL("../", import.meta.url);

/** As the service writes them into its pages. @type {Record<string, string>} */
const ENTITIES = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&" };

/** @param {string | undefined} text */
export const segment = (text) => encodeURIComponent(text ?? "");

export class Api {
  #root = serviceRoot();
  #credentials;

  /** @param {Credentials} credentials */
  constructor(credentials) {
    this.#credentials = credentials;
  }

  /**
   * `data` of the reply.
   *
   * @template T
   * @param {string} path relative: `agents/x`
   * @param {Options} [options]
   * @returns {Promise<T>}
   * @throws {Refusal}
   */
  async get(path, options) {
    const { data } = await /** @type {Promise<{ data: T }>} */ (this.whole(path, options));
    return data;
  }

  /**
   * The reply as it is: some have more than `data`.
   *
   * @template T
   * @param {string} path
   * @param {Options} [options]
   * @returns {Promise<T>}
   */
  async whole(path, options) {
    return (await this.#send("GET", path, options)).json();
  }

  /** What is not JSON. @param {string} path @param {Options} [options] */
  async text(path, options) {
    return (await this.#send("GET", path, options)).text();
  }

  /**
   * @template T
   * @param {string} path
   * @param {unknown} body
   * @param {Options} [options]
   * @returns {Promise<T>}
   */
  async post(path, body, options) {
    return (await (await this.#send("POST", path, { ...options, body })).json()).data;
  }

  /**
   * Events of a stream as they come. To leave the loop, or to abort the signal, ends the stream.
   *
   * @template T
   * @param {"GET" | "POST"} method
   * @param {string} path
   * @param {Options} [options]
   * @returns {AsyncGenerator<{ id: string, data: T }>}
   */
  async *events(method, path, options) {
    const response = await this.#send(method, path, options);
    if (response.body !== null) yield* readEvents(response.body);
  }

  /**
   * The name of the service, which stands in its first page.
   *
   * @returns {Promise<string>}
   * @throws {Refusal}
   */
  async serviceName() {
    const page = await this.text("./", { headers: { accept: "application/json" } });
    const [, title = ""] = /<title>([^<]*)<\/title>/.exec(page) ?? [];
    return title.replace(/&(?:lt|gt|quot|#39|amp);/g, (entity) => ENTITIES[entity] ?? entity);
  }

  /**
   * The address of a page that the browser opens by itself, which sends no headers: the key goes into the address.
   *
   * @param {string} path
   */
  pageAddress(path) {
    const { key } = this.#credentials.given;
    return key === "" ? `./${path}` : `./${path}?${new URLSearchParams({ key })}`;
  }

  /**
   * @param {string} path `ws/logs`
   * @param {Record<string, string>} query
   */
  socket(path, query) {
    const address = new URL(path, this.#root);
    address.protocol = address.protocol.replace("http", "ws");
    for (const [name, value] of Object.entries(query)) address.searchParams.set(name, value);
    this.#credentials.addTo(address);
    return new WebSocket(address);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Options} [options]
   */
  async #send(method, path, { body, signal, headers = {} } = {}) {
    const response = await fetch(new URL(path, this.#root), {
      method,
      headers: {
        ...(body !== undefined && { "content-type": "application/json" }),
        ...this.#credentials.headers(),
        ...headers,
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
      cache: "no-store",
    });
    if (response.ok) return response;
    throw new Refusal(response.status, await errorOf(response), response.headers);
  }
}

/** @param {Response} response */
async function errorOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string") return error;
  } catch {
    // An error page of a proxy, which is not JSON.
  }
  return `${response.status} ${response.statusText}`.trim();
}
