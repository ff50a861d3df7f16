/** The first `length` characters of a text, one less if they would end in the middle of a surrogate pair. */
export function cutText(text: string, length: number): string {
  const cut = text.slice(0, length);
  return cut.length < text.length && /[\uD800-\uDBFF]$/.test(cut) ? cut.slice(0, -1) : cut;
}
