/** The credentials of requests: the console's key, a user's token, the bypass for development. Only this tab keeps them. */

/** @typedef {{ key: string, token: string, development: boolean }} Given */

export class Credentials {
  #place;
  /** @type {Given} */
  #given = { key: "", token: "", development: false };

  /** @param {URL} root two services on one host have credentials of their own */
  constructor(root) {
    this.#place = `console ${root.pathname}`;
    try {
      const kept = JSON.parse(sessionStorage.getItem(this.#place) ?? "{}");
      this.#given = { key: kept.key ?? "", token: kept.token ?? "", development: kept.development === true };
    } catch {
      // Some browsers refuse storage: then they last as long as the page.
    }
  }

  get given() {
    return this.#given;
  }

  /** @param {Given} given */
  set(given) {
    this.#given = given;
    try {
      sessionStorage.setItem(this.#place, JSON.stringify(given));
    } catch {
      // Some browsers refuse storage.
    }
  }

  /** Takes the key out of the address of the page, where the history and the screen would show it. */
  takeFromAddress() {
    const address = new URL(location.href);
    const key = address.searchParams.get("key");
    if (key === null) return;
    this.set({ ...this.#given, key });
    address.searchParams.delete("key");
    history.replaceState(history.state, "", address);
  }

  /** @returns {Record<string, string>} */
  headers() {
    const { key, token, development } = this.#given;
    return {
      ...(key !== "" && { "x-console-access-key": key }),
      ...(token !== "" && { authorization: `Bearer ${token}` }),
      ...(development && { "x-service-dev": "true" }),
    };
  }

  /**
   * A handshake of a browser has no headers of its own.
   *
   * @param {URL} address
   */
  addTo(address) {
    const { key, token, development } = this.#given;
    if (key !== "") address.searchParams.set("key", key);
    if (token !== "") address.searchParams.set("token", token);
    if (development) address.searchParams.set("dev", "true");
  }
}
