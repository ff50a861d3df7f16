/** Whose execution is meant: several users may have one of the same id. */

/** What a link to an execution says of its user. @param {string} [userId] @returns {Record<string, string>} */
export const whose = (userId = "") => ({ userId });

/** The query of requests about the execution of a page. @param {URLSearchParams} query of the page */
export function ownerQuery(query) {
  const userId = query.get("userId");
  return userId === null ? "" : `?${new URLSearchParams({ userId })}`;
}
