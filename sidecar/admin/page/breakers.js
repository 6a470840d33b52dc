// The breakers: a card for each that needs attention, a row for every one, below its provider.

const FEW = 3; // providers: their rows are shown from the start
const unfolded = new Map(); // what was folded or unfolded by hand, by provider

/** The verdicts of a window as one bar: the worse, the higher. */
function windowChart() {
  const chart = drawn("svg", { class: "window", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const verdict of Object.keys(VERDICTS)) chart.append(drawn("rect", { "data-kind": verdict }));
  return chart;
}

const HEIGHTS = { success: 8, alive: 12, throttle: 16, failure: 20, neutral: 4 };

function updateWindowChart(chart, figures) {
  const all = Object.keys(VERDICTS).reduce((sum, verdict) => sum + figures[verdict], 0);
  let x = 0;
  for (const rect of chart.children) {
    const verdict = rect.getAttribute("data-kind");
    const width = all ? (100 * figures[verdict]) / all : 0;
    setAttribute(rect, "x", x.toFixed(2));
    setAttribute(rect, "width", width.toFixed(2));
    setAttribute(rect, "y", 20 - HEIGHTS[verdict]);
    setAttribute(rect, "height", HEIGHTS[verdict]);
    x += width;
  }
}

const verbsOf = (entry) => [
  entry.state === "open" ? null : "open",
  entry.state === "closed" ? null : "close",
  "reset",
  entry.mode === "observe" ? "enforce" : "observe",
].filter(Boolean);

const makeButtons = () => element("div", { class: "buttons" });

function updateButtons(group, key, entry) {
  keyed(group, model.mayChange ? verbsOf(entry) : [], (verb) => verb,
    (verb) => element("button", { type: "button", "data-verb": verb }, verb),
    (button, verb) => {
      setAttribute(button, "data-key", key);
      setAttribute(button, "aria-label", `${verb} ${key}`);
      button.disabled = !model.reached;
    });
}

// -- cards ---------------------------------------------------------------------------------

function makeCard() {
  const state = tag("", ""), key = element("h3"), mode = element("span", { class: "mode" });
  const next = element("span"), left = element("strong", { class: "left" });
  const reason = element("p", { class: "reason" }), facts = element("p", { class: "facts" });
  const since = element("span"), rest = element("span");
  const chart = windowChart(), figures = element("p", { class: "facts" }), buttons = makeButtons();
  facts.append(since, rest);
  const card = element("li", { class: "card" },
    element("div", { class: "top" }, key, state, mode), element("p", { class: "next" }, next, " ", left),
    reason, facts, chart, figures, buttons);
  card.parts = { state, key, mode, next, left, reason, since, rest, chart, figures, buttons };
  return card;
}

function updateCard(card, { key, entry, settings }) {
  const parts = card.parts;
  setAttribute(card, "data-tone", TONES[entry.state]);
  setText(parts.key, key);
  setTag(parts.state, stateWord(entry.state), TONES[entry.state]);
  setText(parts.mode, modeWords(entry));
  setText(parts.next, nextWords(entry, settings));
  setUntil(parts.left, entry.state === "open" ? entry.until : null);
  setText(parts.reason, entry.reason);
  setSince(parts.since, time(entry.since));
  const hint = entry.hint ? ` · the upstream asked for ${span(entry.hint)}` : "";
  const said = entry.last_error?.code && entry.reason?.includes(entry.last_error.code);
  const last = entry.last_error && !said ? ` · ${errorWords(entry.last_error)}` : "";
  setText(parts.rest, ` (${clock(entry.since)}) · opened ${count(entry.opens, "time")}${hint}${last}`);
  updateWindowChart(parts.chart, entry.window);
  setText(parts.figures, `last ${span(entry.window.seconds)}: ${windowWords(entry.window)}`);
  updateButtons(parts.buttons, key, entry);
}

function makeNote() {
  const state = tag("", ""), key = element("h3"), text = element("span"), left = element("strong", { class: "left" });
  const facts = element("p", { class: "facts" });
  const card = element("li", { class: "card" }, element("div", { class: "top" }, key, state), element("p", { class: "next" }, text, " ", left), facts);
  card.parts = { state, key, text, left, facts };
  return card;
}

function updateNote(card, { key, word, tone, text, until, facts }) {
  const parts = card.parts;
  setAttribute(card, "data-tone", tone);
  setText(parts.key, key);
  setTag(parts.state, word, tone);
  setText(parts.text, text);
  setUntil(parts.left, until);
  setText(parts.facts, facts);
}

function sheddingNote(entry) {
  const facts = [];
  if (entry.rate !== null && entry.rate !== undefined) facts.push(`${numbers.format(entry.rate)} calls a second pass`);
  facts.push(`${numbers.format(entry.queued ?? 0)} wait`, `${numbers.format(entry.shed ?? 0)} shed so far`);
  if (entry.hint !== null && entry.hint !== undefined) facts.push(`the upstream asked for ${span(entry.hint)}${entry.hint_source ? ` (${entry.hint_source})` : ""}`);
  return {
    id: `shedding ${entry.key}`, key: entry.key, word: entry.state, tone: TONES[entry.state] ?? "odd",
    text: entry.not_before ? "its next call may go" : "the upstream limits its rate", until: time(entry.not_before), facts: facts.join(" · "),
  };
}

function quotaNote(entry) {
  return {
    id: `quota ${entry.key}`, key: entry.key, word: "spent", tone: "bad",
    text: `${entry.code}; one call asks again`, until: time(entry.next_check), facts: entry.until ? `reopens at ${clock(entry.until)}` : "nobody said when it reopens",
  };
}

/** Everything that is not as it should be, the worst first. */
function troubles(status) {
  const found = [];
  const add = (key, entry, settings) => {
    if (entry.state !== "closed" && matches(key, entry.state, entry.reason, entry.last_error?.code)) found.push({ id: key, key, entry, settings });
  };
  for (const [name, provider] of Object.entries(status.providers)) {
    for (const [key, entry] of Object.entries(provider.breakers)) add(key, entry, own(model.config?.providers, name));
  }
  for (const [name, entry] of Object.entries(status.dependencies)) add(name, entry, own(model.config?.dependencies, name));
  found.sort((a, b) => (a.entry.state === b.entry.state ? a.key.localeCompare(b.key) : a.entry.state === "open" ? -1 : 1));
  for (const provider of Object.values(status.providers)) {
    const shedding = (provider.shedding ?? []).filter((entry) => entry.state !== "idle").map(sheddingNote);
    const notes = [...shedding, ...(provider.quota ?? []).map(quotaNote)];
    // Two credentials may be restricted under one name.
    notes.forEach((note, index) => (note.id += ` ${index}`));
    found.push(...notes.filter((note) => matches(note.key, note.word, note.text)));
  }
  return found;
}

function drawTroubles(status) {
  const found = troubles(status);
  byId("calm").hidden = found.length > 0;
  setText(byId("calm"), filterText() ? "Nothing that matches is open, shed or spent." : "Nothing is open, shed or spent.");
  keyed(byId("cards"), found.slice(0, 100), (one) => one.id,
    (one) => (one.entry ? makeCard() : makeNote()),
    (card, one) => (one.entry ? updateCard(card, one) : updateNote(card, one)));
}

// -- rows ----------------------------------------------------------------------------------

const COLUMNS = ["breaker", "state", "next", "last window", "changed", ""];

function makeTable(label) {
  const head = element("tr", {}, ...COLUMNS.map((column) => (column ? element("th", { scope: "col" }, column) : element("td"))));
  const body = element("tbody");
  const table = element("table", { class: "breakers", "aria-label": label }, element("thead", {}, head), body);
  table.body = body;
  return table;
}

function makeRow() {
  const key = element("th", { scope: "row" }), state = tag("", ""), mode = element("span", { class: "mode" });
  const next = element("span"), left = element("strong", { class: "left" });
  const chart = windowChart(), figures = element("span"), since = element("span"), buttons = makeButtons();
  const row = element("tr", {}, key, element("td", {}, state, mode), element("td", { class: "then" }, next, " ", left),
    element("td", { class: "figures" }, chart, figures), element("td", { class: "since" }, since), element("td", { class: "act" }, buttons));
  row.parts = { key, state, mode, next, left, chart, figures, since, buttons };
  return row;
}

function updateRow(row, { key, label, entry, settings }) {
  const parts = row.parts;
  setText(parts.key, label);
  setTag(parts.state, stateWord(entry.state), TONES[entry.state]);
  setText(parts.mode, modeWords(entry));
  setText(parts.next, nextWords(entry, settings));
  setUntil(parts.left, entry.state === "open" ? entry.until : null);
  updateWindowChart(parts.chart, entry.window);
  setText(parts.figures, windowWords(entry.window));
  setSince(parts.since, entry.reason ? time(entry.since) : null);
  setAttribute(row, "title", entry.reason);
  updateButtons(parts.buttons, key, entry);
}

function makeProvider({ name, few }) {
  const title = element("span", { class: "name" }, name), verdict = tag("", ""), facts = element("span", { class: "facts" });
  const table = makeTable(`Breakers of ${name}`), more = element("p", { class: "facts" });
  const node = element("details", {}, element("summary", {}, title, verdict, facts), more, table);
  node.parts = { verdict, facts, table, more };
  node.open = unfolded.get(name) ?? few;
  node.addEventListener("toggle", () => {
    if (!node.filtering) unfolded.set(name, node.open);
    draw();
  });
  return node;
}

function updateProvider(node, { name, provider, rows, all }) {
  const parts = node.parts;
  const settings = own(model.config?.providers, name);
  // While something is looked for, what was found is shown. Otherwise the element alone knows whether
  // it is open: its event comes later than a drawing may.
  const filtering = Boolean(filterText());
  if (filtering !== Boolean(node.filtering)) {
    if (filtering) node.before = node.open;
    node.open = filtering || node.before;
    node.filtering = filtering;
  }
  setTag(parts.verdict, provider.verdict, TONES[provider.verdict]);
  const troubled = all.filter((row) => row.entry.state !== "closed").length;
  const errors = Object.values(provider.errors.by_class).reduce((sum, number) => sum + number, 0);
  setText(parts.facts, [
    count(all.length, "breaker"), troubled ? `${numbers.format(troubled)} not closed` : null, `${numbers.format(provider.in_flight)} in flight`,
    count(errors, "error"), provider.mode === "enforce" ? null : provider.mode,
  ].filter(Boolean).join(" · "));
  setText(parts.more, `${provider.upstream} · dialect ${provider.dialect}`);
  keyed(parts.table.body, node.open ? rows : [], (row) => row.key, makeRow, (row, one) => updateRow(row, { ...one, settings }));
}

/** A provider's own breaker is the one of its connections; the others are named after models and routes. */
function rowsOf(name, provider) {
  const rows = Object.entries(provider.breakers).map(([key, entry]) => ({ key, entry, label: key === name ? "connections" : key.slice(name.length + 1) }));
  const quiet = ({ entry }) => Number(entry.state === "closed");
  return rows.sort((a, b) => quiet(a) - quiet(b));
}

function drawProviders(status) {
  const names = Object.keys(status.providers);
  const shown = [];
  for (const name of names) {
    const provider = status.providers[name], all = rowsOf(name, provider);
    const whole = matches(name, provider.verdict);
    const rows = whole ? all : all.filter((row) => matches(row.key, row.entry.state, row.entry.reason));
    if (whole || rows.length) shown.push({ name, provider, rows, all, few: names.length <= FEW });
  }
  keyed(byId("providers"), shown, (one) => one.name, makeProvider, updateProvider);
}

function drawDependencies(status) {
  const entries = Object.entries(status.dependencies);
  const section = byId("dependencies-section"), place = byId("dependencies");
  section.hidden = !entries.length;
  place.table ??= place.appendChild(makeTable("Breakers of dependencies"));
  const rows = entries.map(([key, entry]) => ({ key, entry, label: key, settings: own(model.config?.dependencies, key) }));
  keyed(place.table.body, rows.filter((row) => matches(row.key, row.entry.state)), (row) => row.key, makeRow, updateRow);
}

function drawReclassified(status) {
  const found = Object.entries(status.providers).filter(([name, provider]) => provider.reclassified.last && matches(name, provider.reclassified.last.code));
  byId("reclassified-section").hidden = !found.length;
  keyed(byId("reclassified"), found, ([name]) => name,
    () => element("li", {}, element("strong"), element("span"), element("button", { type: "button", class: "link" })),
    (node, [name, { reclassified: { total, last } }]) => {
      const [who, what, id] = node.children;
      setText(who, name);
      setText(what, ` ${count(total, "answer")} so far. The last: ${reclassifiedWords(last)} `);
      setText(id, last.correlation_id);
      setAttribute(id, "data-failure", last.correlation_id);
      setAttribute(id, "aria-label", `show the failure ${last.correlation_id}`);
    });
}
