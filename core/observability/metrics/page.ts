/** The text of `/metrics`, and what was counted lately. prom-client and the monitor of the event loop are loaded with the first request for it. */
import { Activity } from "./activity.ts";
import type { Exposition } from "./exposition.ts";
import type { Meters } from "./meters.ts";

export class MetricsPage {
  readonly #meters: Meters;
  readonly activity: Activity;
  #exposition: Promise<Exposition> | null = null;

  constructor(meters: Meters) {
    this.#meters = meters;
    this.activity = new Activity(meters);
  }

  async text(): Promise<string> {
    this.#exposition ??= import("./exposition.ts").then(({ createExposition }) => createExposition(this.#meters));
    return (await this.#exposition).text();
  }

  /** To be called when numbers have come or gone: the page is made anew with the next request for it. */
  async renew(): Promise<void> {
    const before = this.#exposition;
    this.#exposition = null;
    (await before)?.close();
  }

  async close(): Promise<void> {
    this.activity.stop();
    (await this.#exposition)?.close();
  }
}
