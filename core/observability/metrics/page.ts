/** The text of `/metrics`, and recent activity. prom-client and the event loop monitor are loaded with the first request. */

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

  /** Must be called when numbers were added or removed: the page is rebuilt with the next request. */
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
