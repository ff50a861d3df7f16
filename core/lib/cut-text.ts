/** The first `length` characters of a text, one less where they would end in half a character: a lone surrogate is not valid Unicode. */
export function cutText(text: string, length: number): string {
  const cut = text.slice(0, length);
  return cut.length < text.length && /[\uD800-\uDBFF]$/.test(cut) ? cut.slice(0, -1) : cut;
}
