/** The text of `/metrics`, and recent activity. prom-client is loaded with the first request. */
import type { Meters } from "./meters.ts";
import { createRecentActivity, type RecentActivity } from "./recent-activity.ts";

export class MetricsPage {
  readonly #meters: Meters;
  readonly activity: RecentActivity;
  #text: Promise<() => Promise<string>> | null = null;

  constructor(meters: Meters) {
    this.#meters = meters;
    this.activity = createRecentActivity(meters);
  }

  async text(): Promise<string> {
    this.#text ??= import("./exposition.ts").then(({ createExposition }) => createExposition(this.#meters));
    return (await this.#text)();
  }

  /** Must be called when numbers were added or removed: the page is rebuilt with the next request. */
  renew(): void {
    this.#text = null;
  }

  close(): void {
    this.activity.stop();
  }
}
