// The heat strip: a square for each rank of the job that is looked at, coloured by how far it is behind the
// others in their calls, or by its node's last heartbeat. What is behind, and by how much, the daemon says.
"use strict";

const lags = [
  { below: 1, colour: "--age-0", word: "with the others" },
  { below: 3000, colour: "--age-1", word: "below 3 s" },
  { below: 10000, colour: "--age-2", word: "below 10 s" },
  { below: 30000, colour: "--age-3", word: "below 30 s" },
  { below: Infinity, colour: "--age-4", word: "longer" },
];
const waitsColour = "--held", untoldColour = "--untold", failedColour = "--failed";
/// Among so many ranks a few that are behind are easily overlooked, so a frame is drawn around them.
const framesFrom = 500, framesMax = 200;

let strip = { nodes: [], ranks: [], failed: null, columns: 1, cell: 1 };
let cursor = 0;          // The rank, by its place, that the strip tells of.
let view = null;         // "lag" or "heartbeat", once somebody has chosen.

const isTold = () => strip.nodes.some((node) => node.calls !== null);
const viewNow = () => isTold() ? view || "lag" : "heartbeat";

/// Each rank's node, with what it is doing where that was told.
function ranksOfNodes(nodes) {
  const ranks = [];
  for (const node of nodes) {
    const own = Array.from({ length: node.workers }, (_, i) => ({ node, rank: node.first_rank === null ? null : node.first_rank + i, calls: null }));
    for (const calls of node.calls || []) {
      for (let i = 0; i < calls.ranks; ++i) {
        const one = own[calls.first_rank - node.first_rank + i];
        if (one) one.calls = calls;
      }
    }
    ranks.push(...own);
  }
  return ranks;
}

function colourByLag({ node, calls }) {
  if (others[node.state]) return others[node.state][0];
  if (calls === null) return untoldColour;
  if (calls.behind_ms > 0) return lags.find((lag) => calls.behind_ms < lag.below).colour;
  if (calls.state === "ended") return others.ended[0];
  if (calls.state === "none") return untoldColour;
  return calls.state === "waits" ? waitsColour : lags[0].colour;
}
const colourOfRank = (one) => strip.failed !== null && one.rank === strip.failed ? failedColour
  : viewNow() === "lag" ? colourByLag(one) : colourOf(one.node);
const isBehind = (one) => one.calls !== null && one.calls.behind;

function showRanks(job) {
  const placed = job.nodes.filter((node) => node.first_rank !== null).sort((a, b) => a.first_rank - b.first_rank);
  strip.nodes = [...placed, ...job.nodes.filter((node) => node.first_rank === null)];
  strip.ranks = ranksOfNodes(strip.nodes);
  strip.failed = job.first_failure ? job.first_failure.rank : null;
  cursor = Math.max(0, Math.min(cursor, strip.ranks.length - 1));
  $("ranks").hidden = strip.ranks.length === 0;
  $("views").hidden = !isTold();
  for (const name of ["lag", "heartbeat"]) $(`view-${name}`).setAttribute("aria-pressed", viewNow() === name ? "true" : "false");
  $("next-behind").hidden = viewNow() !== "lag" || !strip.ranks.some(isBehind);
  setText($("foremost"), isTold() && job.foremost_call ? `The foremost ranks have come to ${job.foremost_call}.` : "");
  drawRanks();
  showLegend();
  showCursor();
}

function showLegend() {
  const used = new Set(strip.ranks.map(colourOfRank)), byLag = viewNow() === "lag";
  const entry = ([colour, word]) => used.has(colour) ? element("li", {}, element("i", { "--swatch": `var(${colour})` }), word) : null;
  const bands = (byLag ? lags : ages).map((band) => [band.colour, band.word]);
  $("legend").setAttribute("aria-label", byLag ? "Colours: how long a rank has been behind the others" : "Colours: time since the last heartbeat");
  put($("legend"),
    byLag ? entry(bands.shift()) : null,
    byLag ? entry([waitsColour, "waits for others"]) : null,
    bands.some(([colour]) => used.has(colour)) ? element("li", { class: "quiet" }, byLag ? "behind for" : "last heartbeat") : null,
    ...bands.map(entry), ...Object.values(others).map(entry),
    entry([untoldColour, "no call told"]), entry([failedColour, "failed first"]));
}

/// Squares as large as fit into a third of the window, one for each rank.
function drawRanks() {
  const canvas = $("ranks"), width = canvas.clientWidth, scale = window.devicePixelRatio || 1, count = strip.ranks.length;
  if (width === 0 || count === 0) return;
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const tallest = Math.max(rem * 6, window.innerHeight / 3);
  // Whole nodes to a row, where all have as many ranks.
  const first = strip.nodes[0].workers, whole = strip.nodes.every((node) => node.workers === first) ? first : 1;
  const columnsOf = (cell) => {
    const all = Math.max(1, Math.floor(width / cell));
    return all >= whole ? all - all % whole : all;
  };
  let cell = Math.round(rem * 1.4);
  while (cell > 3 && Math.ceil(count / columnsOf(cell)) * cell > tallest) --cell;
  const columns = columnsOf(cell), rows = Math.ceil(count / columns);
  const height = Math.max(cell, rows * cell), gap = cell >= 9 ? 2 : 1, side = cell - gap;
  strip = { ...strip, columns, cell };
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d"), theme = getComputedStyle(document.documentElement), colours = {};
  const named = (name) => colours[name] = colours[name] || theme.getPropertyValue(name).trim();
  const corner = (place) => [(place % columns) * cell, Math.floor(place / columns) * cell];
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  strip.ranks.forEach((one, place) => {
    const [x, y] = corner(place);
    pen.fillStyle = named(colourOfRank(one));
    if (gap > 1) { pen.beginPath(); pen.roundRect(x, y, side, side, cell / 6); pen.fill(); } else pen.fillRect(x, y, side, side);
  });
  // Around so many squares of one row, within the canvas.
  const frame = (place, length, colour, line) => {
    const [x, y] = corner(place), pad = Math.max(line, (rem - side) / 2);
    const left = Math.max(x - pad, line), top = Math.max(y - pad, line);
    const right = Math.min(x + length * cell - gap + pad, width - line), bottom = Math.min(y + side + pad, height - line);
    for (const [ink, thick] of [["--card", line + 2.5], [colour, line]]) {
      pen.beginPath();
      pen.roundRect(left, top, right - left, bottom - top, rem / 2);
      pen.strokeStyle = named(ink);
      pen.lineWidth = thick;
      pen.stroke();
    }
  };
  if (count > framesFrom && viewNow() === "lag") {
    const runs = [];
    strip.ranks.forEach((one, place) => {
      if (!isBehind(one)) return;
      const last = runs.at(-1);
      if (last && last.place + last.length === place && place % columns !== 0) ++last.length;
      else runs.push({ place, length: 1 });
    });
    for (const { place, length } of runs.length > framesMax ? [] : runs) frame(place, length, "--ink", 1.75);
  }
  if (document.activeElement !== canvas) return;
  if (cell < 9) { frame(cursor, 1, "--accent", 3); return; }
  const [x, y] = corner(cursor), line = Math.max(1.5, cell / 8);
  pen.strokeStyle = named("--ink");
  pen.lineWidth = line;
  pen.strokeRect(x + line / 2, y + line / 2, side - line, side - line);
}

function rankText(one) {
  const node = one.node, where = `node ${node.id} on ${node.host}`;
  const heard = `${node.state}, heard ${age(node.heartbeat_age_ms)} ago`;
  if (one.rank === null) return `no rank yet: ${where}, ${heard}`;
  if (one.calls === null) return `rank ${one.rank}: ${where}, ${heard}`;
  const behind = one.calls.behind_ms > 0 ? `; ${plural(one.calls.calls_behind, "call")} behind, for ${age(one.calls.behind_ms)}` : "";
  return `rank ${one.rank}: ${where}, ${one.calls.doing}${behind}; ${heard}`;
}
function showCursor() {
  const canvas = $("ranks"), one = strip.ranks[cursor];
  if (!one) { setText($("readout"), "No rank has a place yet."); return; }
  canvas.setAttribute("aria-valuemax", strip.ranks.length - 1);
  canvas.setAttribute("aria-valuenow", cursor);
  canvas.setAttribute("aria-valuetext", rankText(one));
  setText($("readout"), rankText(one));
}
function moveTo(place) {
  cursor = Math.max(0, Math.min(place, strip.ranks.length - 1));
  drawRanks();
  showCursor();
}

// ---- What somebody does with it ----

function startStrip() {
  const canvas = $("ranks");
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / strip.cell), row = Math.floor((event.clientY - box.top) / strip.cell);
    const place = row * strip.columns + column;
    if (column < strip.columns && place < strip.ranks.length) moveTo(place);
  });
  canvas.addEventListener("keydown", (event) => {
    const row = strip.columns;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row, PageDown: 10 * row, PageUp: -10 * row };
    if (event.key in steps) moveTo(cursor + steps[event.key]);
    else if (event.key === "Home") moveTo(0);
    else if (event.key === "End") moveTo(strip.ranks.length - 1);
    else return;
    event.preventDefault();
  });
  for (const what of ["focus", "blur"]) canvas.addEventListener(what, drawRanks);
  addEventListener("resize", drawRanks);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawRanks);
  for (const name of ["lag", "heartbeat"]) {
    $(`view-${name}`).addEventListener("click", () => {
      view = name;
      if (detail) showRanks(detail);
    });
  }
  $("next-behind").addEventListener("click", () => {
    const after = strip.ranks.findIndex((one, place) => place > cursor && isBehind(one));
    moveTo(after >= 0 ? after : strip.ranks.findIndex(isBehind));
    canvas.focus();
  });
}
