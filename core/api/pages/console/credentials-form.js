/** Asks for credentials: in a dialog, or in place of the console where it is refused without them. */
import { element, replace } from "./elements.js";
import { field, problem } from "./parts.js";

/** @import { Credentials } from "./credentials.js" */

/** @param {Credentials} credentials */
function credentialFields({ given: { key, token, development } }) {
  /** @param {string} id @param {string} value */
  const secret = (id, value) =>
    element("input", { id, type: "password", autocomplete: "off", value, spellcheck: "false" });
  const keyField = secret("credential-key", key);
  const tokenField = secret("credential-token", token);
  const bypass = element("input", { id: "credential-development", type: "checkbox", checked: development });
  return {
    body: [
      element("p", { class: "quiet" }, "They stay in this tab, and go to this service alone."),
      field("Console key", keyField, "Opens lists, executions, traces and logs where the service asks for it."),
      field("User token", tokenField, "A JWT: chats, runs and resumes as that user."),
      element(
        "div",
        { class: "check" },
        bypass,
        element("label", { for: bypass.id }, "Development bypass (not in production)"),
      ),
    ],
    read: () => ({ key: keyField.value.trim(), token: tokenField.value.trim(), development: bypass.checked }),
  };
}

/**
 * @param {Credentials} credentials
 * @param {() => void} changed
 */
export function openCredentialsForm(credentials, changed) {
  const fields = credentialFields(credentials);

  /** @param {Event} event */
  function save(event) {
    event.preventDefault();
    credentials.set(fields.read());
    dialog.close();
    changed();
  }

  const dialog = element(
    "dialog",
    { "aria-labelledby": "credentials-title", onclose: () => dialog.remove() },
    element(
      "form",
      { onsubmit: save },
      element("h2", { id: "credentials-title" }, "Credentials"),
      ...fields.body,
      element(
        "div",
        { class: "actions" },
        element("button", { type: "submit" }, "Save"),
        element("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Cancel"),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * Asks until the service lets the console in. Credentials that the tab has kept are tried first.
 *
 * @param {Credentials} credentials
 * @param {HTMLElement} place
 * @param {() => Promise<string>} enter gives the name of the service, or throws
 * @returns {Promise<string>} the name
 */
export async function signIn(credentials, place, enter) {
  if (Object.values(credentials.given).some(Boolean)) {
    try {
      return await enter();
    } catch {
      // They have ended, or are for another service: the form asks for others.
    }
  }
  const fields = credentialFields(credentials);
  const failure = element("div");
  const submit = element("button", { type: "submit" }, "Sign in");
  return new Promise((resolve) => {
    /** @param {Event} event */
    async function send(event) {
      event.preventDefault();
      submit.disabled = true;
      credentials.set(fields.read());
      try {
        resolve(await enter());
      } catch (error) {
        replace(failure, problem(error instanceof Error ? error.message : error));
        submit.disabled = false;
      }
    }
    const form = element(
      "form",
      { class: "panel", onsubmit: send },
      ...fields.body,
      failure,
      element("div", { class: "actions" }, submit),
    );
    replace(place, element("main", { class: "console sign-in" }, element("h1", {}, "Sign in"), form));
    form.querySelector("input")?.focus();
  });
}
