/** Shows the view that the part of the address behind `#` names: `#/workflows/refund?status=running`. */
import { element, plain, replace } from "./elements.js";
import { problem } from "./parts.js";

/** @import { Api } from "./api.js" */

/**
 * @typedef {object} Place where a view is shown, and for how long
 * @property {Api} api
 * @property {string} serviceName
 * @property {Record<string, string>} params
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal aborts when the view is left
 * @property {HTMLElement} body
 * @property {(text: string) => void} title
 * @property {(text: string) => void} announce says it to screen readers
 * @property {(section: string, count: number, isMore?: boolean) => void} count shows in the bar how much there is to do
 * @property {() => void} keepFocus gives the focus to the heading where what had it is gone
 */
/** @typedef {(place: Place) => void | Promise<void>} View */
/** @typedef {{ path: string, title: string, view: View }} Route */

/**
 * @param {string} path with its parameters filled in by `segment`
 * @param {Record<string, string>} [query] empty values are left out
 */
export function linkTo(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  return `#/${path}${given.length === 0 ? "" : `?${new URLSearchParams(given)}`}`;
}

/** @param {string} hash */
function partsOf(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path, query: new URLSearchParams(query) };
}

/**
 * @param {string} pattern
 * @param {string} path
 * @returns {Record<string, string> | null}
 */
function matched(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [index, word] of wanted.entries()) {
    const value = given[index] ?? "";
    if (!word.startsWith(":")) {
      if (word !== value) return null;
      continue;
    }
    try {
      params[word.slice(1)] = decodeURIComponent(value);
    } catch {
      return null;
    }
  }
  return params;
}

/**
 * Shows a view whenever the address changes. The focus goes to the heading of a new view, and stays where it was when only
 * the query of one has changed.
 *
 * @param {readonly Route[]} routes
 * @param {{ main: HTMLElement, api: Api, serviceName: string, announce(text: string): void, count(section: string, count: number, isMore?: boolean): void, shown(path: string): void }} page
 * @returns {() => void} shows the present view anew
 */
export function startRouter(routes, page) {
  const { main, api, announce, count, serviceName } = page;
  let leaving = new AbortController();
  /** @type {string | null} */
  let before = null;

  /** @param {boolean} [again] */
  function show(again = false) {
    const { path, query } = partsOf(location.hash);
    const stays = again || before === path;
    const focused = stays ? (document.activeElement?.id ?? "") : "";
    leaving.abort();
    leaving = new AbortController();
    const { signal } = leaving;
    page.shown(path);
    const heading = element("h1", { tabindex: -1 });
    const body = element("div", { class: "view" });
    /** @param {string} text */
    const title = (text) => {
      replace(heading, text);
      document.title = plain(path === "" ? serviceName : `${text} · ${serviceName}`);
    };
    replace(main, heading, body);
    const keepFocus = () => {
      if (!signal.aborted && document.activeElement === document.body) heading.focus();
    };
    const place = { api, serviceName, query, signal, body, title, announce, count, keepFocus };
    const moveFocus = () => {
      if (!stays && before !== null) heading.focus();
      else if (focused !== "") document.getElementById(focused)?.focus();
      before = path;
    };
    for (const route of routes) {
      const params = matched(route.path, path);
      if (params === null) continue;
      title(route.title);
      // A failure is shown in place of the view, unless another view has replaced it meanwhile.
      Promise.resolve(route.view({ ...place, params }))
        .catch((error) => {
          if (!signal.aborted) body.append(problem(error));
        })
        .then(() => {
          if (signal.aborted || focused === "" || document.activeElement !== document.body) return;
          (document.getElementById(focused) ?? heading).focus();
        });
      return moveFocus();
    }
    title("Nothing here");
    body.append(element("p", {}, "No view has this address. ", element("a", { href: "#/" }, "To the overview")));
    moveFocus();
  }

  addEventListener("hashchange", () => show());
  show();
  return () => show(true);
}
