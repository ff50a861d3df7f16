/** Which user an execution belongs to: several users may have executions with the same id. */

/** The query of a link to an execution of a user. @param {string} [userId] @returns {Record<string, string>} */
export const whose = (userId = "") => ({ userId });

/** The query of requests about the execution of a page. @param {URLSearchParams} query of the page */
export function ownerQuery(query) {
  const userId = query.get("userId");
  return userId === null ? "" : `?${new URLSearchParams({ userId })}`;
}
