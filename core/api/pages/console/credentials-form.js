/** The dialog that asks for credentials. */
import { element } from "./elements.js";
import { field } from "./parts.js";

/** @import { Credentials } from "./credentials.js" */

/**
 * @param {Credentials} credentials
 * @param {() => void} changed
 */
export function openCredentialsForm(credentials, changed) {
  const { key, token, development } = credentials.given;
  /** @param {string} id @param {string} value */
  const secret = (id, value) =>
    element("input", { id, type: "password", autocomplete: "off", value, spellcheck: "false" });
  const keyField = secret("credential-key", key);
  const tokenField = secret("credential-token", token);
  const bypass = element("input", { id: "credential-development", type: "checkbox", checked: development });

  /** @param {Event} event */
  function save(event) {
    event.preventDefault();
    credentials.set({ key: keyField.value.trim(), token: tokenField.value.trim(), development: bypass.checked });
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
      element("p", { class: "quiet" }, "They stay in this tab, and go to this service alone."),
      field("Console key", keyField, "Opens lists, executions, traces and logs where the service asks for it."),
      field("User token", tokenField, "A JWT: chats, runs and resumes as that user."),
      element(
        "div",
        { class: "check" },
        bypass,
        element("label", { for: bypass.id }, "Development bypass (not in production)"),
      ),
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
