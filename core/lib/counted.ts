/** Formats counts for people. */

/** `1 message`, `2 messages`. @param plural its first plural noun is changed for 1: `entries of plugins` */
export const counted = (count: number, plural: string): string =>
  `${count} ${count === 1 ? plural.replace(/ies\b|s\b/, (ending) => (ending === "ies" ? "y" : "")) : plural}`;
