"""The style of the report: light and dark, narrow and wide, on a screen and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --ink: light-dark(#1c2430, #e3e8ef); --soft: light-dark(#5b6675, #98a4b3); --line: light-dark(#e2e6eb, #2c3642);
  --page: light-dark(#f6f7f9, #12171d); --card: light-dark(#ffffff, #1a212a); --track: light-dark(#e9edf2, #28323e);
  --good: light-dark(#13734b, #4cc38a); --bad: light-dark(#b3261e, #ff8f87); --held: light-dark(#8a5a00, #e6b450);
  --c0: light-dark(#2f6fdb, #6ea3ff); --c1: light-dark(#c2680c, #f0a35c); --c2: light-dark(#17876d, #4cc9a8);
  --c3: light-dark(#a83a86, #e58cc8); --c4: light-dark(#6a54c9, #a796f5); --c5: light-dark(#5f7280, #a3b4c0);
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 2rem 1.5rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 .25rem; }
p { margin: .25rem 0; }
code { font: .9em/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
a { color: var(--c0); }
.note { color: var(--soft); font-size: .875rem; }
header { margin-bottom: 1.25rem; }
.status { margin: .75rem 0 .25rem; padding-left: .75rem; border-left: 4px solid var(--good); overflow-wrap: anywhere;
  white-space: pre-line; }
.status b { color: var(--good); }
.status.failed { border-color: var(--bad); } .status.failed b { color: var(--bad); }
.status.stopped { border-color: var(--held); } .status.stopped b { color: var(--held); }
.tiles { display: grid; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); gap: .75rem; margin: 0 0 1rem; }
@media screen and (max-width: 50rem) { .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: .7rem .9rem; min-width: 0; }
.tile dt { color: var(--soft); font-size: .8125rem; overflow-wrap: anywhere; }
.tile dd { margin: 0; font-size: 1.4rem; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.tile dd.note { font-size: .8125rem; font-weight: 400; }
.tile.bad dd:not(.note) { color: var(--bad); }
section { margin: 0 0 1rem; padding: 1rem 1.1rem; break-inside: avoid-page; }
svg { display: block; width: 100%; min-width: 42rem; height: auto; margin-top: .75rem; overflow: visible; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg text.title { font-weight: 600; fill: var(--ink); }
.grid { stroke: var(--line); shape-rendering: crispEdges; }
.line { fill: none; stroke: var(--colour); stroke-width: 1.6; stroke-linejoin: round; }
.area { fill: var(--colour); opacity: .14; } .band { fill: var(--colour); opacity: .28; }
rect.bar { fill: var(--colour); } rect.bar:hover { opacity: .75; }
.zone { fill: var(--ink); opacity: 0; } .zone:hover { opacity: .07; }
.s0 { --colour: var(--c0); } .s1 { --colour: var(--c1); } .s2 { --colour: var(--c2); }
.s3 { --colour: var(--c3); } .s4 { --colour: var(--c4); } .s5 { --colour: var(--c5); }
.letters { --colour: var(--c3); }
.idle { --colour: light-dark(#b9c2cd, #4a5664); } .outside { --colour: light-dark(#8b97a5, #6b7887); }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.25rem; font-size: .875rem; }
.key::before { content: ''; display: inline-block; width: .7em; height: .7em; margin-right: .45em; border-radius: 2px;
  background: var(--colour); }
.key small { color: var(--soft); font-size: 1em; font-variant-numeric: tabular-nums; }
.split { display: flex; gap: 2px; height: 1.6rem; margin: .6rem 0 .5rem; border-radius: 4px; overflow: hidden; }
.split span { flex: var(--part) 1 0; min-width: 2px; background: var(--colour); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: .5rem; font-size: .875rem; }
th, td { padding: .3rem .6rem; border-top: 1px solid var(--line); text-align: left; vertical-align: top; }
th { border-top: 0; color: var(--soft); font-weight: 500; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; } th:last-child, td:last-child { padding-right: 0; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.bar { min-width: 9rem; background: linear-gradient(var(--track), var(--track)) no-repeat right .6rem center
  / calc(var(--share) * .88) 68%; }
td.bar:last-child { background-position: right 0 center; }
td code { white-space: pre-wrap; } td a code { white-space: nowrap; }
details { margin-top: .5rem; }
details + details { border-top: 1px solid var(--line); padding-top: .5rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
summary b { font-variant-numeric: tabular-nums; }
footer { color: var(--soft); font-size: .8125rem; }
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; background: none; font-size: 12px; }
  .tile, section { border-color: #ccc; } table { font-size: 10px; }
  * { print-color-adjust: exact; }
  .samples::details-content { content-visibility: visible; block-size: auto; }
  .zone { display: none; } svg { min-width: 0; }
}
"""
