/** The text of `/metrics`, and what was counted lately. prom-client and the monitor of the event loop are loaded with the first request for it. */

import type { Exposition } from "./exposition.ts";
import type { Meters } from "./meters.ts";
import { RecentActivity } from "./recent-activity.ts";

export class MetricsPage {
  readonly #meters: Meters;
  readonly activity: RecentActivity;
  #exposition: Promise<Exposition> | null = null;

  constructor(meters: Meters) {
    this.#meters = meters;
    this.activity = new RecentActivity(meters);
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
