#include "launcher/report/flight_report.hpp"

namespace dlaunch::launcher {
namespace {

/// Longer than a sitting: the second half is a program for browsers, which fetches nothing.
constexpr std::string_view page_begin = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>dlaunch: flight</title><style>
body{font:13px system-ui,sans-serif;margin:16px;color:#222;background:#fff}
h1{font-size:16px;margin:0 0 4px}#note{margin:0 0 8px;color:#555}
#first{margin:0 0 8px;padding:6px 8px;background:#fdeaea;border-left:4px solid #c62828;
white-space:pre-wrap}
svg{border:1px solid #ccc;cursor:grab;display:block;width:100%}
text{font:11px system-ui,sans-serif;fill:#222;pointer-events:none}
#tip{position:fixed;display:none;background:#222;color:#fff;padding:6px 8px;font-size:12px;
white-space:pre;z-index:1;pointer-events:none;border-radius:3px}
.k{display:inline-block;width:12px;height:12px;margin:0 4px 0 12px;vertical-align:-2px}
button{margin-right:6px}
</style></head><body><h1></h1><p id="note"></p><div id="first" hidden></div>
<p><button id="time">by time</button><button id="order">by order</button>
<button id="all">show all</button>
<span class="k" style="background:#7aa6d8"></span>returned
<span class="k" style="background:#f4a742"></span>under way, waits
<span class="k" style="background:#d9534f"></span>failed
<span class="k" style="background:#fff;outline:2px solid #c62828"></span>first divergence
&nbsp; wheel: zoom, drag: move</p><svg></svg><div id="tip"></div>
<script type="application/json" id="data">)html";

constexpr std::string_view page_end = R"html(</script><script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const svg = document.querySelector("svg"), tip = document.getElementById("tip");
const rowHeight = 34, left = 90, top_ = 8, axis = 24;
const text = (c) => {
  const d = [c.purpose, c.reduction, c.dtype, c.count === null || !c.dtype ? null : c.count + " elements",
             c.root === null || c.root === undefined ? null : "root " + c.root].filter(Boolean);
  const number = c.sequence === null ? (c.peer === null ? "" : " rank " + c.peer) +
                                       (c.tag === null ? " any tag" : " tag " + c.tag)
                                     : " #" + c.sequence;
  return (c.owner ? c.owner + " " : "") + c.op + number + (d.length ? " (" + d.join(", ") + ")" : "");
};
const span = (s) => s >= 1 ? s.toFixed(2) + " s"
                  : s >= 1e-3 ? (s * 1e3).toFixed(2) + " ms" : (s * 1e6).toFixed(0) + " us";
const collective = (c) => c.sequence !== null && c.kind === "call";
const key = (c) => c.communicator + "/" + c.sequence;
let byTime = true, from = 0, to = 1, first = Infinity, last = -Infinity;
const rows = data.ranks.map((r) => ({rank: r, calls: r.records.map((c) => {
  const w = r.waiting.find((x) => x.number === c.number);
  return {...c, end: c.ended === null ? data.time : c.ended, open: c.ended === null, wait: w};
})}));
for (const row of rows) for (const c of row.calls) {
  first = Math.min(first, c.began); last = Math.max(last, c.end);
}
if (first > last) { first = data.time - 1; last = data.time; }
// By order: a collective has the column of its number, so that ranks that are behind show.
const columns = new Map();
for (const row of rows) for (const c of row.calls)
  if (collective(c)) columns.set(key(c), Math.min(c.began, columns.get(key(c)) ?? Infinity));
const order = new Map([...columns].sort((a, b) => a[1] - b[1]).map(([k], i) => [k, i]));
const range = (c) => {
  if (byTime) return [c.began, c.end];
  return collective(c) ? [order.get(key(c)) + 0.05, order.get(key(c)) + 0.95] : null;
};
const reset = () => {
  [from, to] = byTime ? [first, last + (last - first) * 0.02 + 1e-9]
                      : [Math.max(0, order.size - 40), Math.max(order.size, 1)];
};
const make = (name, attributes, parent, content) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (content !== undefined) e.textContent = content;
  parent.append(e); return e;
};
function draw() {
  svg.replaceChildren();
  const width = svg.clientWidth, height = top_ + rows.length * rowHeight + axis;
  svg.setAttribute("height", height);
  const x = (v) => left + (v - from) / (to - from) * (width - left - 8);
  rows.forEach((row, i) => {
    const y = top_ + i * rowHeight;
    if (i % 2 === 0) make("rect", {x: 0, y, width, height: rowHeight, fill: "#f6f6f6"}, svg);
    for (const c of row.calls) {
      const at = range(c);
      if (!at || at[1] < from || at[0] > to) continue;
      const x0 = Math.max(left, x(at[0])), x1 = Math.min(width, x(at[1]));
      if (x1 < left) continue;
      const w = Math.max(2, x1 - x0);
      const box = make("rect", {x: x0, y: y + 5, width: w, height: rowHeight - 10, rx: 2,
        fill: c.open ? "#f4a742" : c.state === "failed" ? "#d9534f" : "#7aa6d8",
        stroke: c.diverges ? "#c62828" : "#fff", "stroke-width": c.diverges ? 3 : 0.5}, svg);
      box.onmousemove = (e) => {
        tip.style.display = "block";
        tip.style.left = Math.min(e.clientX + 12, innerWidth - 380) + "px";
        tip.style.top = e.clientY + 12 + "px";
        tip.textContent = "rank " + row.rank.rank + ": " + text(c) +
          (c.communicator_name ? " of '" + c.communicator_name + "'" : "") +
          "\n" + (c.site || "") + "\n" + c.state + ", " + span(c.end - c.began) + ", " +
          span(c.began - first) + " after the first" +
          (c.wait && c.wait.waits_for !== null ? "\nwaits for rank " + c.wait.waits_for : "");
      };
      box.onmouseleave = () => { tip.style.display = "none"; };
      if (w > 60) make("text", {x: x0 + 4, y: y + 21}, svg, text(c).slice(0, Math.floor(w / 6.2)));
    }
    make("rect", {x: 0, y, width: left - 2, height: rowHeight,
                  fill: i % 2 === 0 ? "#f6f6f6" : "#fff"}, svg);
    make("text", {x: 6, y: y + 15, "font-weight": "bold"}, svg, "rank " + row.rank.rank);
    make("text", {x: 6, y: y + 28}, svg, row.rank.end || row.rank.state);
  });
  for (let i = 0; i <= 6; ++i) {
    const v = from + (to - from) * i / 6;
    const label = byTime ? span(Math.max(0, v - first)) : "call " + Math.round(v);
    make("line", {x1: x(v), x2: x(v), y1: top_, y2: height - axis, stroke: "#ddd"}, svg);
    make("text", {x: x(v) - (i === 6 ? 50 : 0), y: height - 8}, svg, label);
  }
}
svg.addEventListener("wheel", (e) => {
  e.preventDefault();
  const part = (e.offsetX - left) / (svg.clientWidth - left - 8);
  const at = from + (to - from) * Math.min(1, Math.max(0, part));
  const f = Math.exp(e.deltaY * 0.002);
  from = at - (at - from) * f; to = at + (to - at) * f; draw();
}, {passive: false});
svg.addEventListener("pointermove", (e) => {
  if (e.buttons !== 1) return;
  const d = e.movementX / (svg.clientWidth - left - 8) * (to - from);
  from -= d; to -= d; draw();
});
document.getElementById("time").onclick = () => { byTime = true; reset(); draw(); };
document.getElementById("order").onclick = () => { byTime = false; reset(); draw(); };
document.getElementById("all").onclick = () => { reset(); draw(); };
document.querySelector("h1").textContent =
  "job " + data.job + ", attempt " + data.attempt + ", " + data.world_size + " ranks";
document.getElementById("note").textContent =
  rows.map((r) => "rank " + r.rank.rank + ": " + r.rank.doing).join("; ").slice(0, 1200);
if (data.divergence) {
  const d = data.divergence, box = document.getElementById("first");
  box.hidden = false;
  box.textContent = "First divergence: call #" + d.sequence + " of '" + (d.communicator_name || "?") + "'\n" +
    d.calls.map((c) => "  rank " + c.rank + ": " + c.call + (c.site ? "  [" + c.site + "]" : "")).join("\n") +
    (d.absent.length ? "\n  absent: rank " + d.absent.join(", ") : "");
}
if (location.hash === "#order") byTime = false;
addEventListener("resize", draw);
reset(); draw();
</script></body></html>
)html";

}  // namespace

std::string timeline_html(const JobSnapshot& job) {
  std::string page(page_begin);
  // Nothing in it may end the element it stands in.
  for (const char c : flight_json(job)) {
    if (c == '<') {
      page += "\\u003c";
    } else {
      page += c;
    }
  }
  return page.append(page_end);
}

}  // namespace dlaunch::launcher
