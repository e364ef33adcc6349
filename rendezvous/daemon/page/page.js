// The page that an operator leaves open. It asks for the jobs once a second while somebody looks,
// and hears at once of what happens to them by /events. Whatever comes is put in as text, never as
// markup.
"use strict";

const $ = (id) => document.getElementById(id);
const jobsShownMax = 200, nodesShownMax = 200, eventsKeptMax = 1024, eventsShownMax = 200;
const askSoon = 250, askEvery = 1000, askEveryIfLarge = 2000, largeNodes = 2000, comeAgainAfter = 5000;

// ---- What is known ----

let jobs = [];            // As /api/v1/jobs lists them.
let detail = null;        // The job that is looked at, in full.
let chosen = null;        // Its name, if somebody chose it.
let events = [];          // The last ones of all jobs, oldest first.
let heardAt = null;       // When the daemon last answered.

// ---- Small pieces ----

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/// Replaces what is in `parent` where it would look different: focus, selection and a screen reader
/// stay where they are.
function put(parent, ...children) {
  const next = document.createElement(parent.tagName);
  next.append(...children.filter((child) => child !== null));
  if (next.innerHTML !== parent.innerHTML) parent.replaceChildren(...next.childNodes);
}

const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const plural = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;
const pair = (name, value, kind, small) =>
  element("div", { class: kind || null }, element("dt", {}, name),
    element("dd", {}, value, small === undefined ? null : element("small", {}, small)));

function age(ms) {
  if (ms === null || ms === undefined) return "–";
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}
function bytes(n) {
  let unit = 0;
  while (n >= 1024 && unit < 4) { n /= 1024; ++unit; }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
const ranksOf = (node) => node.first_rank === null ? "–"
  : node.workers === 1 ? `${node.first_rank}` : `${node.first_rank}–${node.first_rank + node.workers - 1}`;

/// How a job or a node stands, by a word, and by the class that colours it.
function jobState(job) {
  if (job.state !== "finished") return { word: job.state, kind: `is-${job.state}` };
  return job.exit_code === 0 ? { word: "finished", kind: "is-finished" }
    : { word: `failed, code ${job.exit_code}`, kind: "is-failed" };
}
const badge = ({ word, kind }) => element("span", { class: `state ${kind}` }, word);

// ---- Heartbeats as colours ----

const ages = [
  { below: 1500, colour: "--age-0", word: "below 1.5 s" },
  { below: 3000, colour: "--age-1", word: "below 3 s" },
  { below: 5000, colour: "--age-2", word: "below 5 s" },
  { below: 10000, colour: "--age-3", word: "below 10 s" },
  { below: Infinity, colour: "--age-4", word: "longer" },
];
const others = { silent: ["--gone", "silent"], waiting: ["--waiting", "waits"], ended: ["--ended", "ended"] };
const colourOf = (node) => (others[node.state] || [ages.find((a) => node.heartbeat_age_ms < a.below).colour])[0];

// ---- The list of jobs ----

const trouble = (job) => job.state === "finished" ? 3 : job.nodes_silent > 0 || job.state !== "running" ? 0 : 1;

function showJobs() {
  const words = $("find").value.trim().toLowerCase();
  const found = jobs.filter((job) => job.job.toLowerCase().includes(words))
    .sort((a, b) => trouble(a) - trouble(b) || a.job.localeCompare(b.job));
  const list = $("jobs"), shown = found.slice(0, jobsShownMax), current = shownName();
  const rows = new Map([...list.children].map((row) => [row.dataset.job, row]));
  const order = shown.map((job) => {
    const row = rows.get(job.job) || element("li", { "data-job": job.job }, element("button", { type: "button" }));
    const button = row.firstChild, state = jobState(job);
    button.className = `job ${state.kind}`;
    button.setAttribute("aria-current", job.job === current ? "true" : "false");
    const done = job.state === "finished";
    put(button,
      element("span", { class: "top" }, element("span", { class: "name" }, job.job), badge(state)),
      element("span", { class: "what" }, job.standing || " "),
      element("span", { class: "figures" },
        element("span", {}, done ? plural(job.world_size, "rank") : `${job.nodes_present} of ${job.nodes_max === job.nodes_min ? job.nodes_min : `${job.nodes_min}–${job.nodes_max}`} nodes`),
        element("span", {}, `epoch ${job.epoch}`),
        job.nodes_silent > 0 && !done ? element("span", { class: "alarm" }, `${job.nodes_silent} silent`) : null,
        job.ranks_behind > 0 && !done ? element("span", { class: "alarm" }, `${job.ranks_behind.toLocaleString("en")} behind`) : null));
    return row;
  });
  if (order.length !== list.children.length || order.some((row, i) => list.children[i] !== row)) {
    const focused = document.activeElement;
    list.replaceChildren(...order);
    if (list.contains(focused)) focused.focus();
  }
  setText($("jobs-note"), found.length > shown.length ? `${shown.length} of ${plural(found.length, "job")} are shown` : "");
}

function showTotals() {
  const alive = jobs.filter((job) => job.state !== "finished");
  const sum = (what) => alive.reduce((all, job) => all + what(job), 0);
  const silent = sum((job) => job.nodes_silent);
  put($("totals"),
    pair("running", `${jobs.filter((job) => job.state === "running").length}`),
    pair("gathering", `${jobs.filter((job) => job.state === "gathering").length}`),
    pair("nodes", sum((job) => job.nodes_present).toLocaleString("en")),
    pair("ranks", sum((job) => job.world_size).toLocaleString("en")),
    pair("silent", silent.toLocaleString("en"), silent > 0 ? "alarm" : ""));
  document.title = `${silent > 0 ? `${silent} silent · ` : ""}${plural(alive.length, "job")} · dlaunchd`;
}

/// The job that is looked at: the one that was chosen, or the one that needs it most.
function shownName() {
  if (chosen !== null && jobs.some((job) => job.job === chosen)) return chosen;
  const first = [...jobs].sort((a, b) => trouble(a) - trouble(b) || a.job.localeCompare(b.job))[0];
  return first ? first.job : null;
}

// ---- One job ----

function showJob() {
  $("empty").hidden = jobs.length > 0;
  $("shown").hidden = detail === null;
  if (detail === null) return;
  const job = detail, state = jobState(job), done = job.state === "finished";
  setText($("name"), job.job);
  $("state").className = `state ${state.kind}`;
  setText($("state"), state.word);
  setText($("standing"), !done ? job.standing : job.exit_code === 0 ? job.sentence || job.standing : "");
  const short = job.nodes_present < job.nodes_min && !done;
  const oldest = job.heartbeat_age_ms;
  put($("tiles"),
    pair("Nodes", job.nodes_present.toLocaleString("en"), short ? "warn" : "", `of ${job.nodes_min.toLocaleString("en")}${job.nodes_max > job.nodes_min ? `–${job.nodes_max.toLocaleString("en")}` : ""}`),
    pair("Ranks", job.world_size.toLocaleString("en"), "", job.ranks_behind > 0 ? element("b", {}, `${job.ranks_behind.toLocaleString("en")} behind`) : job.foremost_call ? "none behind" : ""),
    pair("Epoch", `${job.epoch}`, "", `attempt ${job.attempt}`),
    pair("Silent", job.nodes_silent.toLocaleString("en"), job.nodes_silent > 0 && !done ? "alarm" : "", "nodes"),
    pair("Oldest heartbeat", age(oldest), oldest > 10000 ? "alarm" : oldest > 5000 ? "warn" : ""),
    pair("Store", bytes(job.bytes), "", plural(job.keys, "key")));
  const ours = events.filter((event) => event.job === job.job);
  showFailure(job, ours);
  showMissing(job, ours);
  showRanks(job);
  showEpochs(job, ours);
  showNodes(job);
  showEvents(ours);
}

/// The failure that ended the job, with what its first rank said last; while it goes on, why the
/// last epoch was stopped.
function showFailure(job, ours) {
  const failed = job.state === "finished" && job.exit_code !== 0;
  const stopped = ours.filter((event) => event.event === "stopping").at(-1);
  $("failure").hidden = !failed && (!stopped || job.state === "finished");
  if ($("failure").hidden) return;
  const first = failed ? job.first_failure : null;
  setText($("failure-title"), failed ? (first ? `First failure: rank ${first.rank} on ${first.host}` : "Why it failed")
    : `Why epoch ${stopped.epoch} was stopped`);
  const reason = failed ? job.sentence : stopped.sentence.replace(/^epoch \d+ is stopped: /, "");
  setText($("failure-sentence"), reason || "");
  put($("failure-facts"), ...(first ? [
    pair("Node", first.node), pair("Local rank", `${first.local_rank}`), pair("Process", `${first.pid}`),
    first.time_ms ? pair("Ended", clock(first.time_ms)) : null,
    first.message ? pair("Said", first.message) : null,
    first.error_file ? pair("Error file", first.error_file) : null] : failed ? [] : [pair("At", clock(stopped.time_ms))]));
  const words = first ? first.last_lines : [];
  $("words-box").hidden = words.length === 0;
  setText($("words"), words.join("\n"));
}

/// The missing, and why they are: ranks that are behind the others, nodes that are silent, those that were lost
/// in this epoch, and those that have not come yet.
function showMissing(job, ours) {
  const lines = [];
  let behind = 0;
  if (job.state !== "finished") {
    for (const ranks of job.behind) lines.push([ranks.name, ranks.sentence.slice(ranks.name.length)]);
    const more = job.ranks_behind - job.behind.reduce((all, ranks) => all + ranks.ranks, 0);
    if (more > 0) lines.push([plural(more, "more rank"), more === 1 ? " is behind" : " are behind"]);
    behind = lines.length;
    const silent = job.nodes.filter((node) => node.state === "silent");
    for (const node of silent.slice(0, 20)) {
      lines.push([`${node.id} on ${node.host}`, ` has been silent for ${age(node.heartbeat_age_ms)}, with its connection broken${node.first_rank === null ? "" : `; ranks ${ranksOf(node)}`}`]);
    }
    if (silent.length > 20) lines.push([plural(silent.length - 20, "node"), " more are silent"]);
    const away = job.nodes_min - job.nodes_present;
    if (away > 0) lines.push([plural(away, "node"), ` ${away === 1 ? "has" : "have"} not come: ${job.standing}`]);
    const lost = ours.filter((event) => (event.event === "lost" || event.event === "evicted") && event.epoch === job.epoch);
    for (const event of lost.slice(-5)) lines.push([clock(event.time_ms), ` ${event.sentence}`]);
  }
  $("missing").hidden = lines.length === 0;
  setText($("missing-title"), behind === 0 ? "Missing" : behind < lines.length ? "Behind, and missing" : "Behind");
  put($("missing-list"), ...lines.map(([who, why]) => element("li", {}, element("b", {}, who), why)));
}

// ---- Epochs ----

/// From when to when each epoch was, as far as the events reach, and what ended it.
function epochsOf(job, ours) {
  const epochs = new Map();
  const of = (event) => {
    if (!epochs.has(event.epoch)) epochs.set(event.epoch, { number: event.epoch, attempt: event.attempt, begin: null, end: null, why: "", bad: false });
    return epochs.get(event.epoch);
  };
  for (const event of ours) {
    if (event.epoch === 0) continue;
    if (event.event === "epoch") {
      for (const open of epochs.values()) open.end = open.end || event.time_ms;
      Object.assign(of(event), { begin: event.time_ms, attempt: event.attempt, what: event.sentence.replace(/^epoch \d+, attempt \d+: /, "") });
    } else if (event.event === "stopping" && !of(event).end) {
      Object.assign(of(event), { end: event.time_ms, bad: true, why: event.sentence.replace(/^epoch \d+ is stopped: /, "") });
    } else if (event.event === "finished") {
      const last = of(event);
      last.end = last.end || event.time_ms;
      last.bad = last.bad || event.level === "error";
      last.why = last.why || event.sentence;
    }
  }
  return [...epochs.values()].filter((epoch) => epoch.begin !== null);
}

function showEpochs(job, ours) {
  const epochs = epochsOf(job, ours).slice(-40), now = Date.now();
  $("lane").hidden = epochs.length === 0;
  if (epochs.length === 0) {
    setText($("epochs-span"), "");
    put($("epochs"), element("li", {}, element("span", { class: "quiet" }, job.epoch === 0 ? "None has begun." : `Epoch ${job.epoch} began before the events that are remembered.`)));
    return;
  }
  const begin = epochs[0].begin, end = Math.max(begin + 1, ...epochs.map((epoch) => epoch.end || now)), whole = end - begin;
  setText($("epochs-span"), `${clock(begin)} to ${job.state === "finished" ? clock(end) : "now"}`);
  put($("lane"), ...epochs.map((epoch) => {
    const share = ((epoch.end || now) - epoch.begin) / whole;
    const bar = element("span", { "--swatch": epoch.end === null ? "var(--accent)" : epoch.bad ? "var(--bad)" : "var(--good)" }, share > 0.04 ? `${epoch.number}` : "");
    bar.style.left = `${(100 * (epoch.begin - begin) / whole).toFixed(2)}%`;
    bar.style.width = `${(100 * share).toFixed(2)}%`;
    return bar;
  }));
  put($("epochs"), ...epochs.slice(-8).reverse().map((epoch) => element("li", {},
    element("b", {}, `Epoch ${epoch.number}, attempt ${epoch.attempt}`),
    element("span", { class: "quiet" }, `${epoch.end === null ? "for " : ""}${age((epoch.end || now) - epoch.begin)}`),
    element("span", { class: "why" }, epoch.why || `runs with ${epoch.what || ""}`))));
}

// ---- Nodes and events ----

const severity = { silent: 0, stopping: 1, waiting: 2, running: 3, ended: 4 };

function showNodes(job) {
  const words = $("find-node").value.trim().toLowerCase(), rank = /^\d+$/.test(words) ? Number(words) : null;
  const has = (node) => node.id.toLowerCase().includes(words) || node.host.toLowerCase().includes(words) ||
    (rank !== null && node.first_rank !== null && rank >= node.first_rank && rank < node.first_rank + node.workers);
  const step = (node) => ages.findIndex((a) => node.heartbeat_age_ms < a.below);
  const lag = (node) => Math.max(0, ...(node.calls || []).map((calls) => calls.behind ? calls.behind_ms : 0));
  const found = job.nodes.filter(has).sort((a, b) => severity[a.state] - severity[b.state] || lag(b) - lag(a) || step(b) - step(a) ||
    (a.first_rank ?? Infinity) - (b.first_rank ?? Infinity) || a.id.localeCompare(b.id));
  const shown = found.slice(0, nodesShownMax);
  put($("nodes"), ...shown.map((node) => element("tr", {},
    element("td", {}, node.id), element("td", {}, ranksOf(node)),
    element("td", {}, badge({ word: node.state, kind: `is-${node.state}` })),
    element("td", { class: "number" }, age(node.heartbeat_age_ms)),
    element("td", { class: `number ${lag(node) > 0 ? "alarm" : ""}` }, lag(node) > 0 ? age(lag(node)) : "–"),
    element("td", {}, node.host))));
  setText($("nodes-note"), found.length > shown.length ? `The ${shown.length} of ${plural(found.length, "node")} that need most attention.` : "");
}

/// Leaves out how things stood but for the last of a row, and what the event beside it says, too.
function worthTelling(ours) {
  const says = (event, other) => other && Math.abs(event.time_ms - other.time_ms) < 1000 &&
    (other.sentence.endsWith(event.sentence) || (other.event === "epoch" && event.sentence.startsWith(`epoch ${other.epoch}:`)));
  return ours.filter((event, i) => event.event !== "standing" || !(ours[i + 1] && ours[i + 1].event === "standing") &&
    ![-2, -1, 1, 2].some((step) => says(event, ours[i + step])));
}

function showEvents(ours) {
  const list = $("events"), wanted = worthTelling(ours).slice(-eventsShownMax).reverse();
  const rows = new Map([...list.children].map((row) => [row.dataset.id, row]));
  const order = wanted.map((event) => rows.get(event.id) || element("li", { class: event.level, "data-id": event.id },
    element("time", { datetime: new Date(event.time_ms).toISOString() }, clock(event.time_ms)), element("p", {}, event.sentence)));
  if (order.length !== list.children.length || order.some((row, i) => list.children[i] !== row)) list.replaceChildren(...order);
}

// ---- To and from the daemon ----

function setLink(kind, text) {
  $("link").className = `link ${kind}`;
  setText($("link-text"), text);
}

async function read(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(8000) });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

let asking = false, askAgain = false, timer = null;
async function ask() {
  if (asking) { askAgain = true; return; }
  asking = true;
  askAgain = false;
  clearTimeout(timer);
  try {
    jobs = (await read("api/v1/jobs")).jobs;
    const name = shownName();
    if (detail && detail.job !== name) cursor = 0;
    detail = name === null ? null : await read(`api/v1/jobs/${encodeURIComponent(name)}`);
    heardAt = Date.now();
    $("stale").hidden = true;
    showAll();
  } catch (error) {
    $("stale").hidden = false;
    const since = heardAt === null ? "" : ` What is shown is of ${clock(heardAt)}.`;
    setText($("stale"), `The daemon does not answer${error.name === "TypeError" || error.name === "TimeoutError" ? "" : `: ${error.message}`}.${since}`);
  }
  asking = false;
  if (document.hidden) return;
  const large = detail && detail.nodes.length > largeNodes;
  timer = setTimeout(ask, large ? askEveryIfLarge : askAgain ? askSoon : askEvery);
}

function showAll() {
  showTotals();
  showJobs();
  showJob();
}

let stream = null, again = null;
function follow() {
  if (stream || document.hidden) return;
  clearTimeout(again);
  stream = new EventSource("events");
  stream.onopen = () => setLink("live", "live");
  stream.onmessage = (message) => {
    const event = { ...JSON.parse(message.data), id: message.lastEventId };
    if (events.some((known) => known.id === event.id)) return;
    events.push(event);
    if (events.length > eventsKeptMax) events.splice(0, events.length - eventsKeptMax);
    ask();
  };
  stream.onerror = () => {
    setLink("lost", "reconnecting");
    if (stream.readyState !== EventSource.CLOSED) return;
    // The browser has given up, which it does where the answer is not a stream.
    leave();
    again = setTimeout(follow, comeAgainAfter);
  };
}
function leave() {
  if (stream) stream.close();
  stream = null;
}

// ---- What somebody does here ----

$("jobs").addEventListener("click", (event) => {
  const row = event.target.closest("li");
  if (!row) return;
  location.hash = `job=${encodeURIComponent(row.dataset.job)}`;
});
function choose() {
  const found = /^#job=(.*)$/.exec(location.hash);
  try { chosen = found ? decodeURIComponent(found[1]) : chosen; } catch { chosen = null; }
  cursor = 0;
  if (detail && detail.job !== chosen) ask();
  showJobs();
  const row = [...$("jobs").children].find((one) => one.dataset.job === chosen);
  if (row) $("jobs").scrollTop = row.offsetTop - 4;
}
addEventListener("hashchange", choose);
$("find").addEventListener("input", showJobs);
$("find-node").addEventListener("input", () => detail && showNodes(detail));

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { leave(); clearTimeout(timer); setLink("", "paused"); } else { follow(); ask(); }
});

startStrip();
choose();
follow();
ask();
