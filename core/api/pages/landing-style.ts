/** The landing page's style sheet: self-contained, for light and dark, from phones to wide screens. */
export const LANDING_STYLE = `
:root {
  color-scheme: light dark;
  --ground: #f6f8f9; --surface: #fff; --text: #10222b; --soft: #51646e; --line: #dbe3e7;
  --accent: #0b6e7f; --on-accent: #fff; --chip: #e8f1f3; --chip-text: #0d5361;
  --code: #0f2730; --code-text: #e3eff2; --code-soft: #86b9c4; --code-line: #0f2730;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0c171c; --surface: #13232a; --text: #e4eef1; --soft: #94abb4; --line: #22373f;
    --accent: #46c1d3; --on-accent: #06222a; --chip: #1a333c; --chip-text: #8fd8e4;
    --code: #081116; --code-text: #d9e9ed; --code-soft: #6fa6b2; --code-line: #1c333b;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
#landing .content, .hero > div, footer { max-width: 72rem; margin: 0 auto; padding: 0 1.5rem; }
a { color: var(--accent); text-underline-offset: .2em; }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 4px; }
code { font-family: var(--mono); font-size: .86em; overflow-wrap: anywhere; }

#landing {
  .hero { background: var(--surface); border-bottom: 1px solid var(--line); overflow: hidden; position: relative; }
  .hero > div { padding-top: 3.5rem; padding-bottom: 2.75rem; position: relative; }
  .hero svg { position: absolute; right: -3rem; top: 0; height: 100%; width: min(46rem, 75%); color: var(--accent); opacity: .26; }
  h1 { font-size: clamp(2rem, 5vw, 3rem); line-height: 1.1; letter-spacing: -.025em; margin: 0; overflow-wrap: anywhere; }
  .version { font: 500 .8rem/1 var(--mono); color: var(--soft); margin: 0 0 1rem; letter-spacing: .02em; }
  .lead { font-size: 1.15rem; color: var(--soft); margin: .9rem 0 1.75rem; max-width: 38rem; }
  nav { display: flex; flex-wrap: wrap; gap: .6rem; }
  nav a {
    padding: .5rem 1rem; border: 1px solid var(--line); border-radius: 8px; background: var(--surface);
    color: var(--text); text-decoration: none; font-weight: 500; font-size: .95rem;
  }
  nav a:hover { border-color: var(--accent); color: var(--accent); }
  nav a.main { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
  nav a.main:hover { filter: brightness(1.08); color: var(--on-accent); }

  section { margin: 2.75rem 0; }
  h2 { font-size: 1.2rem; letter-spacing: -.01em; margin: 0 0 1rem; display: flex; align-items: baseline; gap: .6rem; }
  h2 span { font: 500 .8rem/1 var(--mono); color: var(--soft); }

  .shells { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
  .shell { background: var(--code); color: var(--code-text); border: 1px solid var(--code-line); border-radius: 12px; padding: 1rem 1.25rem 1.2rem; min-width: 0; }
  .shell p { margin: 0 0 .6rem; color: var(--code-soft); font-size: .82rem; }
  pre { margin: 0; font: .86rem/1.7 var(--mono); white-space: pre; overflow-x: auto; user-select: all; -webkit-user-select: all; }

  .cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
  .card { background: var(--surface); border: 1px solid var(--line); border-radius: 12px; padding: 1.2rem 1.35rem; min-width: 0;
    display: flex; flex-direction: column; }
  .card h3 { margin: 0; font-size: 1.06rem; overflow-wrap: anywhere; }
  .card h3 a { color: inherit; text-decoration: none; }
  .card h3 a:hover { color: var(--accent); text-decoration: underline; }
  .card .id { color: var(--soft); }
  .card > p { margin: .5rem 0 1rem; color: var(--soft); overflow-wrap: anywhere; }
  dl { margin: auto 0 0; display: grid; grid-template-columns: auto 1fr; gap: .45rem .9rem; font-size: .9rem; }
  dt { color: var(--soft); }
  dd { margin: 0; min-width: 0; display: flex; flex-wrap: wrap; gap: .35rem; }
  .chip { font: 500 .79rem/1.3 var(--mono); background: var(--chip); color: var(--chip-text); border-radius: 6px; padding: .14rem .48rem; overflow-wrap: anywhere; }

  .rows { background: var(--surface); border: 1px solid var(--line); border-radius: 12px; padding: 0; margin: 0; list-style: none; }
  .rows li { display: grid; grid-template-columns: minmax(9rem, 15rem) 1fr auto; gap: .2rem 1.25rem; padding: .75rem 1.35rem; align-items: baseline; }
  .rows li + li { border-top: 1px solid var(--line); }
  .rows code { font-weight: 600; }
  .rows p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
  .rows .tags { display: flex; flex-wrap: wrap; gap: .35rem; }
  @media (max-width: 44rem) {
    .hero > div { padding-top: 2.25rem; padding-bottom: 2rem; }
    .hero svg { display: none; }
    .rows li { grid-template-columns: 1fr; }
    section { margin: 2.1rem 0; }
  }
  footer { padding-top: 1.25rem; padding-bottom: 2.5rem; color: var(--soft); font-size: .88rem; }
}
`;

/** Water that falls from a height into many outlets: a penstock. */
export const LANDING_FIGURE = `<svg viewBox="0 0 460 220" preserveAspectRatio="xMaxYMid slice" fill="none" stroke="currentColor" stroke-width="1.6" aria-hidden="true">
<path d="M110 -12C210 -12 220 44 300 44S400 20 470 20"/><path d="M90 -12C206 0 214 68 300 68S400 62 470 62"/>
<path d="M70 -12C202 14 210 92 300 92S400 104 470 104"/><path d="M50 -12C198 28 206 116 300 116S400 146 470 146"/>
<path d="M30 -12C194 42 202 140 300 140S400 188 470 188"/><path d="M10 -12C190 56 198 164 300 164S400 230 470 230"/>
<circle cx="300" cy="44" r="4" fill="currentColor"/><circle cx="300" cy="68" r="4" fill="currentColor"/><circle cx="300" cy="92" r="4" fill="currentColor"/>
<circle cx="300" cy="116" r="4" fill="currentColor"/><circle cx="300" cy="140" r="4" fill="currentColor"/><circle cx="300" cy="164" r="4" fill="currentColor"/></svg>`;

export const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='4' fill='%230b6e7f'/%3E%3Cpath d='M3 3c5 0 5 5 10 5M3 3c5 1 5 9 10 9M3 3c5 0 5 1 10 1' fill='none' stroke='%23fff' stroke-width='1.3'/%3E%3C/svg%3E";
