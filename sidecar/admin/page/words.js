// How figures and times are said to people.

const TONES = {
  up: "good", degraded: "odd", down: "bad",
  closed: "good", half_open: "odd", open: "bad",
  idle: "good", waiting: "odd", shedding: "bad",
};
const STATES = { half_open: "half-open" };
const VERDICTS = { success: "good", failure: "failed", alive: "alive", throttle: "throttled", neutral: "neutral" };

const numbers = new Intl.NumberFormat("en");
const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const inWords = JSON.parse(byId("in-words").textContent);

let offset = 0; // milliseconds by which the daemon's clock is ahead of this machine's

/** Both clocks may differ: the page is read on another machine, through a tunnel. */
function setOffset(date) {
  const found = date + 500 - Date.now(); // an HTTP date has whole seconds
  if (Math.abs(found - offset) > 1500) offset = Math.abs(found) > 1500 ? found : 0;
}

/** A time of the daemon's in milliseconds of this machine's clock, or null. */
function time(text) {
  const at = text ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? null : at - offset;
}

const clock = (text) => (text ? clockTime.format(time(text)) : "");

function span(seconds) {
  const left = Math.max(0, seconds);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (left >= 2 * size) return `${Math.floor(left / size)} ${unit}`;
  }
  return `${Math.floor(left)} s`;
}

function countdown(seconds) {
  if (seconds <= 0) return "now";
  if (seconds < 120) return `in ${Math.ceil(seconds)} s`;
  return `in ${span(seconds)}`;
}

const count = (number, one, many = `${one}s`) => `${numbers.format(number)} ${number === 1 ? one : many}`;

/** A member of an object from the wire; names such as "constructor" are members only if they stand there. */
const own = (table, name) => (table && Object.hasOwn(table, name) ? table[name] : undefined);

const stateWord = (state) => own(STATES, state) ?? state;

/** "503 said model_not_found: a typo, not an outage"; `words.py` has the table and says the same. */
function reclassifiedWords({ status, class: class_, code }) {
  const { meant: meanings, suggests: suggestions } = inWords;
  const meant = own(meanings, code) ?? own(meanings, class_) ?? class_;
  const text = String(status);
  const suggests = own(suggestions, text) ?? own(suggestions, text[0]) ?? "what it looked like";
  const said = `${text} said ${code}: ${meant}`;
  return suggests === meant ? said : `${said}, not ${suggests}`;
}

function windowWords(figures) {
  const parts = Object.keys(VERDICTS).filter((verdict) => figures[verdict]).map((verdict) => `${numbers.format(figures[verdict])} ${VERDICTS[verdict]}`);
  return parts.length ? parts.join(", ") : "no calls";
}

/** What a breaker does next, without the seconds: those count down beside it. */
function nextWords(entry, settings) {
  if (entry.state === "open") return entry.half_open_at ? "lets a probe through" : "stays open until someone closes or resets it";
  if (entry.state === "half_open") {
    const probes = entry.probes_in_flight;
    return probes ? `${count(probes, "probe")} under way` : "the next call is its probe";
  }
  const limit = settings?.breaker?.consecutive_failures;
  if (entry.consecutive_failures && limit) {
    const left = Math.max(1, limit - entry.consecutive_failures);
    return `opens after ${numbers.format(left)} more ${left === 1 ? "failure" : "failures"} in a row`;
  }
  return "";
}

/** How far its decisions reach, unless they count. */
const modeWords = ({ mode }) => (mode === "enforce" ? "" : mode === "observe" ? "observes, refuses nothing" : mode);

/** What is done to calls on purpose, so that nobody looks for it at a provider. */
function faultsWords({ rules, ends_in: left }) {
  const told = rules.slice(0, 5).map(({ rule, fault, injected }) => `${rule} (${fault}), ${count(injected, "time")} so far`);
  if (rules.length > told.length) told.push(`${numbers.format(rules.length - told.length)} more`);
  const added = left === null ? "" : ` What was added for a while ends in ${span(left)}.`;
  return `Faults are injected into calls on purpose: ${told.join("; ")}.${added}`;
}

function errorWords(error) {
  if (!error) return "";
  const what = error.code ?? error.kind;
  const status = error.status && String(error.status) !== what ? ` (${error.status})` : "";
  return `last error ${what}${status} at ${clock(error.at)}`;
}
