// What an operator does here: the token stays in this variable, and is gone with the page. Nothing
// is sent before it was confirmed.
"use strict";

let token = null;

const actions = {
  drain: {
    title: (job) => `Drain ${job}?`, verb: "Drain the job", method: "POST", path: (job) => `${job}/drain`,
    what: "Its epoch goes on to its end. No node is let in, none is replaced, and there is no restart.",
  },
  stop: {
    title: (job) => `Stop ${job}?`, verb: "Stop the job", method: "POST", path: (job) => `${job}/stop`,
    what: "It ends on all its nodes, with exit code 143.",
  },
  remove: {
    title: (job) => `Remove ${job}?`, verb: "Remove the job", method: "DELETE", path: (job) => job,
    what: "It ends on all its nodes, if it has not; its keys and its state are removed.",
  },
  evict: {
    title: (job) => `Evict a node of ${job}?`, verb: "Evict the node", method: "POST",
    path: (job, node) => `${job}/nodes/${node}/evict`,
    what: "It counts as lost: the others gather anew, or the job ends. Its workers are ended.",
  },
};
let asked = null;  // What the open dialog is about: the action's name, and the job.

function showOperator() {
  const knows = token !== null;
  setText($("operator"), knows ? "Forget the token" : "Operate…");
  $("acts").hidden = $("evict").hidden = !knows;
}

function tell(sentence, failed) {
  setText($("outcome"), sentence);
  $("outcome").className = failed ? "outcome failed" : "outcome";
  $("outcome").hidden = sentence === "";
}

async function act(name, job, node, reason) {
  const action = actions[name];
  const query = reason === "" ? "" : `?reason=${encodeURIComponent(reason)}`;
  const path = `api/v1/jobs/${action.path(encodeURIComponent(job), encodeURIComponent(node))}${query}`;
  try {
    const answer = await fetch(path, {
      method: action.method, headers: { Authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(8000),
    });
    const sentence = (await answer.text()).trim();
    // A token that is no operator's is not worth keeping.
    if (answer.status === 401) token = null;
    tell(`${job}: ${sentence}`, !answer.ok);
  } catch (error) {
    tell(`${job}: it is not known whether this was done: ${error.message}`, true);
  }
  showOperator();
  ask();
}

// ---- The two dialogs ----

$("operator").addEventListener("click", () => {
  if (token !== null) {
    token = null;
    tell("", false);
    return showOperator();
  }
  $("token").value = "";
  $("token-dialog").showModal();
  $("token").focus();
});
function takeToken() {
  const given = $("token").value.trim();
  $("token").value = "";
  if (given === "") return $("token").focus();
  token = given;
  $("token-dialog").close();
  showOperator();
}
$("token-use").addEventListener("click", takeToken);
$("token").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();  // The same key would press the button that has the focus then.
  takeToken();
});
// A dialog gives the focus back by itself when it closes, except to a button that never had it, as
// after a click in some browsers. This event comes later, and takes it from nobody.
function focusIfLost(element) {
  if (document.activeElement === null || document.activeElement === document.body) element.focus();
}
$("token-dialog").addEventListener("close", () => { $("token").value = ""; focusIfLost($("operator")); });

function propose(name) {
  if (token === null || detail === null) return;
  asked = { name, job: detail.job, from: document.activeElement };
  setText($("act-title"), actions[name].title(detail.job));
  setText($("act-what"), actions[name].what);
  setText($("act-do"), actions[name].verb);
  setText($("act-wrong"), "");
  $("act-node-box").hidden = name !== "evict";
  const silent = detail.nodes.find((node) => node.state === "silent");
  $("act-node").value = name === "evict" && silent ? silent.id : "";
  $("act-reason").value = "";
  $("act-dialog").showModal();
  // Not the button that does it: a key that is still held down confirms nothing.
  $(name === "evict" ? "act-node" : "act-reason").focus();
}
$("act-do").addEventListener("click", () => {
  const { name, job } = asked, node = $("act-node").value.trim();
  if (name === "evict" && !(detail && detail.nodes.some((each) => each.id === node))) {
    setText($("act-wrong"), `the job has no node '${node}' now`);
    return $("act-node").focus();
  }
  $("act-dialog").close();
  act(name, job, node, $("act-reason").value.trim());
});
$("act-dialog").addEventListener("close", () => { if (asked && asked.from) focusIfLost(asked.from); });
for (const name of Object.keys(actions)) {
  $(name).addEventListener("click", () => propose(name));
}
for (const button of document.querySelectorAll("dialog .cancel")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

showOperator();
