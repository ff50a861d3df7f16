/** Texts of a page that are hard to read: WCAG 2.2, success criterion 1.4.3, at level AA. */
import type { Page } from "playwright-core";

/**
 * Runs in the page: each visible text against the nearest background that is opaque. What is disabled is exempt, as the
 * criterion has it. A step of a drawing lies on its own box.
 */
const WEAK_TEXTS = `(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const box = element.closest("g")?.querySelector("rect");
    if (box) return channels(getComputedStyle(box).fill);
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const weak = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (text === "" || element.closest(":disabled, title, script, style, .unseen") || !element.checkVisibility()) continue;
    texts++;
    const style = getComputedStyle(element);
    const drawn = element instanceof SVGElement ? style.fill : style.color;
    const [light, dark] = [luminance(channels(drawn)), luminance(behind(element))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) weak.push(ratio.toFixed(2) + " " + text.slice(0, 60));
  }
  return { texts, weak };
})()`;

/** How many texts there are, and those whose contrast is too small, with their ratio. */
export const weakTexts = (page: Page): Promise<{ texts: number; weak: string[] }> => page.evaluate(WEAK_TEXTS);
