// What is known, and when it is asked for again.
//
// `/events` says at once that a breaker moved; `/status` has the whole truth and is read every
// other second, and shortly after an event. Whoever does not answer is asked every second, and what
// was known stays on the page, marked as old.

const POLL = 2000, POLL_MANY = 4000, POLL_HIDDEN = 15000, RETRY = 1000, SOON = 150;
const MANY = 300; // breakers: the document is large then, and others want the daemon's time too
const FAILURES_EVERY = 4000, ERRORS_EVERY = 10000;
const MOST_CHANGES = 50;

const model = {
  reached: false, // the last call was answered
  lost: null, // since when none was, milliseconds since the epoch
  why: "",
  live: false, // events come
  status: null, config: null, generation: null, mayChange: false,
  faults: null, // what is done to calls on purpose
  failures: [], after: 0, groups: [],
  changes: [], restarted: null,
};

const filterText = () => byId("filter").value.trim().toLowerCase();

function matches(...texts) {
  const wanted = filterText();
  return !wanted || texts.some((text) => text && String(text).toLowerCase().includes(wanted));
}

function say(text) {
  setText(byId("spoken"), text);
}

// -- drawing -------------------------------------------------------------------------------

let drawing = false;

/** Draws before the next frame, however often it is asked to. */
function draw() {
  if (drawing) return;
  drawing = true;
  // A tab in the background has no frames.
  if (document.hidden) setTimeout(drawNow, 0);
  else requestAnimationFrame(drawNow);
}

function drawNow() {
  drawing = false;
  drawLink();
  drawNotices();
  if (!model.status) return;
  drawTotals(model.status);
  drawTroubles(model.status);
  drawProviders(model.status);
  drawDependencies(model.status);
  drawReclassified(model.status);
  drawErrors(model.groups);
  drawFailures(model.failures);
  drawChanges();
  drawConfiguration(model.status.config);
}

function drawLink() {
  const [word, tone] = !model.reached ? (model.status || model.lost ? ["no answer", "bad"] : ["asking …", "idle"])
    : model.live ? ["live", "good"] : ["every few seconds", "odd"];
  setTag(byId("link"), word, tone);
  document.body.classList.toggle("stale", !model.reached && Boolean(model.status));
}

function drawNotices() {
  const notices = [];
  const status = model.status;
  if (model.lost) {
    const then = status ? `What stands below was known at ${clockTime.format(model.lost)}` : "Nothing is known yet";
    notices.push({ id: "lost", tone: "bad", text: `${model.why}. ${then}; it is asked again every second.` });
  }
  if (status && model.reached) {
    if (status.network !== "up") notices.push({ id: "network", tone: "bad", text: `The network of this machine is ${status.network}: no upstream is blamed, no breaker moves.` });
    if (status.config.error) notices.push({ id: "config", tone: "bad", text: `The last reload was refused, the configuration before it stays in force: ${status.config.error}` });
    if (model.faults?.rules.length) notices.push({ id: "faults", tone: "odd", text: faultsWords(model.faults) });
    if (model.restarted) notices.push({ id: "restart", tone: "odd", text: `The daemon was started anew at ${clock(model.restarted)}; figures count from then.` });
  }
  keyed(byId("notices"), notices, (one) => one.id, () => element("p", { class: "notice" }), (node, one) => {
    setAttribute(node, "data-tone", one.tone);
    setText(node, one.text);
  });
}

function drawTotals(status) {
  const providers = Object.values(status.providers);
  const entries = [...providers.flatMap((provider) => Object.values(provider.breakers)), ...Object.values(status.dependencies)];
  const inState = (state) => entries.filter((entry) => entry.state === state).length;
  const sum = (of) => providers.reduce((all, provider) => all + of(provider), 0);
  const up = providers.filter((provider) => provider.verdict === "up").length;
  const open = inState("open"), half = inState("half_open");
  const totals = [
    ["network", status.network, status.network === "up" ? "good" : "bad"],
    ["providers up", `${up} of ${providers.length}`, up === providers.length ? "good" : "bad"],
    ["open", numbers.format(open), open ? "bad" : "good"],
    ["half-open", numbers.format(half), half ? "odd" : "good"],
    ["in flight", numbers.format(sum((provider) => provider.in_flight))],
    ["requests", numbers.format(status.totals.requests)],
    ["answered here", numbers.format(status.totals.answered_here)],
    ["reclassified", numbers.format(sum((provider) => provider.reclassified.total))],
  ];
  keyed(byId("totals"), totals, ([name]) => name, ([name]) => element("div", {}, element("dt", {}, name), element("dd")), (node, [, value, tone]) => {
    setText(node.lastChild, value);
    setAttribute(node, "data-tone", tone ?? null);
  });
  const title = open ? `${open} open · breaker-sidecar` : "breaker-sidecar";
  if (document.title !== title) document.title = title;
  setText(byId("headline"), `${status.version} · up since ${new Date(time(status.started_at)).toLocaleString("en-GB")}`);
}

function drawChanges() {
  const shown = model.changes.filter((change) => matches(change.key, change.new, change.reason));
  byId("no-changes").hidden = shown.length > 0;
  keyed(byId("changes"), shown, (change) => change.number,
    (change) => element("li", {}, element("span", { class: "when" }, clock(change.at)), " ", element("strong", {}, change.key), ` ${stateWord(change.old)} → `,
      tag(stateWord(change.new), TONES[change.new]), ` ${change.reason}${change.enforced ? "" : " (not enforced)"}`),
    () => {});
}

function drawConfiguration(config) {
  const lines = [`generation ${config.generation}, ${config.hash}`, config.error ? `the last reload was refused: ${config.error}` : "the last one that was read is in force"];
  for (const [name, why] of Object.entries(config.disabled ?? {})) lines.push(`${name} is disabled: ${why}`);
  if (model.config && !model.mayChange) lines.push("admin.mutations is false: nothing can be changed here");
  keyed(byId("configuration"), lines, (line) => line, (line) => element("li", {}, line), () => {});
}

// -- asking --------------------------------------------------------------------------------

let timer = null, asking = false, again = false, failuresAt = 0, errorsAt = 0;

function schedule(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(refresh, milliseconds);
}

function refreshSoon() {
  if (asking) again = true;
  else schedule(SOON);
}

async function refresh() {
  if (asking) return;
  asking = true;
  again = false;
  try {
    take(await ask("/status"));
    if (model.generation !== model.status.config.generation) await readConfiguration();
    await readFailures();
    answered();
  } catch (error) {
    unanswered(error);
  } finally {
    asking = false;
  }
  draw();
  if (byId("token").hidden) schedule(pause());
}

function pause() {
  if (!model.reached) return RETRY;
  if (again) return SOON;
  if (document.hidden) return POLL_HIDDEN;
  const breakers = Object.values(model.status.providers).reduce((sum, provider) => sum + Object.keys(provider.breakers).length, 0);
  return breakers > MANY ? POLL_MANY : POLL;
}

function take(status) {
  const now = Date.now();
  for (const provider of Object.values(status.providers)) for (const entry of Object.values(provider.breakers)) setDeadline(entry, now);
  for (const entry of Object.values(status.dependencies)) setDeadline(entry, now);
  if (model.status && model.status.started_at !== status.started_at) {
    Object.assign(model, { restarted: status.started_at, failures: [], after: 0, groups: [], generation: null });
    failuresAt = errorsAt = 0;
    say("The daemon was started anew.");
  }
  model.status = status;
}

/** By what is left, not by the daemon's clock: this machine's may be another. */
function setDeadline(entry, now) {
  entry.until = entry.retry_after === null ? time(entry.half_open_at) : now + entry.retry_after * 1000;
}

async function readConfiguration() {
  const generation = model.status.config.generation;
  model.config = await ask("/config");
  model.generation = generation;
  errorsAt = 0; // the rules of faults may be others
  model.mayChange = model.config.admin?.mutations !== false;
  drawEffective();
}

function drawEffective() {
  const details = byId("effective");
  setText(details.querySelector("pre"), details.open && model.config ? JSON.stringify(model.config, null, 2) : "");
}

async function readFailures() {
  const now = Date.now();
  if (now - failuresAt > FAILURES_EVERY) {
    const refusals = byId("refusals").checked ? "&refusals" : "";
    const { after, failures } = await ask(`/v1/failures?after=${model.after}${refusals}`);
    model.after = after;
    model.failures = [...failures, ...model.failures].slice(0, MOST_FAILURES);
    failuresAt = now;
  }
  if (now - errorsAt > ERRORS_EVERY) {
    model.groups = (await ask("/v1/failures?by=class,code&minutes")).groups;
    model.faults = await ask("/faults?rules");
    errorsAt = now;
  }
}

function answered() {
  if (model.lost) say("The daemon answers again.");
  Object.assign(model, { reached: true, lost: null, why: "" });
}

function unanswered(error) {
  if (!(error instanceof CallError)) console.error(error);
  if (error.status === 401) {
    byId("token").hidden = false;
    return;
  }
  if (!model.lost) {
    model.lost = Date.now();
    say("The daemon does not answer.");
  }
  const why = !(error instanceof CallError) ? `This page has a fault of its own: ${error.message}` : error.status ? `The daemon answers with an error (${error.status}): ${error.message}` : `The daemon does not answer: ${error.message}`;
  Object.assign(model, { reached: false, why });
}

// -- events --------------------------------------------------------------------------------

let changeNumber = 0;

function hear(change) {
  const found = own(own(model.status?.providers, change.provider)?.breakers, change.key) ?? own(model.status?.dependencies, change.key);
  if (found) {
    Object.assign(found, { state: change.new, since: change.at, retry_after: change.retry_after, probes_in_flight: 0 });
    if (change.new !== "half_open") found.reason = change.reason;
    if (change.new === "open") found.half_open_at = change.retry_after === null ? null : change.at;
    found.until = change.retry_after === null ? null : Date.now() + change.retry_after * 1000;
  }
  model.changes = [{ ...change, number: (changeNumber += 1) }, ...model.changes].slice(0, MOST_CHANGES);
  failuresAt = errorsAt = 0;
  say(`${change.key} is ${stateWord(change.new)}: ${change.reason}`);
  draw();
  refreshSoon();
}

async function listen() {
  for (;;) {
    const allowed = byId("token").hidden;
    if (allowed) await follow(() => {
      model.live = true;
      refreshSoon(); // what happened meanwhile was not heard
    }, hear);
    if (model.live) refreshSoon();
    model.live = false;
    await new Promise((resolve) => setTimeout(resolve, RETRY));
  }
}

// -- the beginning -------------------------------------------------------------------------

byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token = event.target.elements.token.value;
  event.target.reset();
  byId("token").hidden = true;
  refresh();
});
byId("filter").addEventListener("input", draw);
byId("search").addEventListener("input", draw);
byId("class").addEventListener("change", draw);
byId("refusals").addEventListener("change", () => {
  Object.assign(model, { failures: [], after: 0 });
  failuresAt = 0;
  refreshSoon();
});
byId("effective").addEventListener("toggle", drawEffective);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refreshSoon();
});
setInterval(tick, 250);
refresh();
listen();
