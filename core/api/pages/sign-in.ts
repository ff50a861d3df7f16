/** `GET /` for a browser without credentials: a page that asks for them, and reveals nothing about the service. */
import type { ConsoleListing } from "./console-files.ts";
import { html, trusted } from "./html.ts";
import { consoleLinks } from "./landing.ts";
import { ICON, LANDING_STYLE } from "./landing-style.ts";

export function renderSignIn(files: ConsoleListing): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in</title>
<link rel="icon" href="${trusted(ICON)}">
<style>${trusted(LANDING_STYLE)}</style>
${consoleLinks(files)}
</head>
<body>
<div id="sign-in"><noscript><p>This page asks for credentials with JavaScript. Without it, open /?key=... with the console's key.</p></noscript></div>
</body>
</html>
`.text;
}
