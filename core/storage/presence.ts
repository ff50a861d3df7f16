/** What a store may know of its processes beside their heartbeats. */

/**
 * Shows which processes have a session with the database. One that ends loses its session at once, which others see long before its
 * lease has run out. A session may also be lost by a process that lives: then it is only a reason to wait less.
 */
export interface Presence {
  /**
   * Shows this process under a name, until its session ends. To be called again and again: a session that was lost is made anew.
   * Never rejects.
   *
   * @returns whether others can see it
   */
  show(name: string): Promise<boolean>;
  /** The names that are shown, by any process, among these. */
  shown(names: readonly string[]): Promise<ReadonlySet<string>>;
}
