// What failed: the last hour by kind, and the last calls one by one.

const MOST_FAILURES = 200;

function drawErrors(groups) {
  const shown = groups.filter((group) => matches(group.class, group.code)).slice(0, 50);
  byId("no-errors").hidden = shown.length > 0;
  byId("errors").hidden = !shown.length;
  keyed(byId("errors").tBodies[0], shown, (group) => `${group.class} ${group.code}`,
    () => {
      const cells = [element("td"), element("th", { scope: "row" }), element("td", { class: "number" }), element("td", { class: "chart" }), element("td")];
      cells[4].append(element("span"));
      return element("tr", {}, ...cells);
    },
    (row, group) => {
      const [class_, code, number, chart, last] = row.children;
      setText(class_, group.class);
      setText(code, group.code);
      setText(number, numbers.format(group.count));
      setSince(last.firstChild, time(group.last.at));
      const drawing = group.minutes.join();
      if (chart.drawing === drawing) return;
      chart.drawing = drawing;
      chart.replaceChildren(bars(group.minutes, group.class), element("span", { class: "hidden" }, minutesWords(group.minutes)));
    });
}

function minutesWords(minutes) {
  const busy = minutes.filter(Boolean).length;
  return `in ${count(busy, "minute")} of the last hour, at most ${numbers.format(Math.max(...minutes))} in one`;
}

// -- the last calls ------------------------------------------------------------------------

function failureText({ key, provider, dependency, decision, status, fault, envelope }) {
  return [key, provider, dependency, decision, status, fault && `injected ${fault}`, envelope.class, envelope.code, envelope.message, envelope.correlation_id].join(" ").toLowerCase();
}

function statusWords({ status, upstream_status: upstream, decision }) {
  if (decision !== "forwarded") return decision;
  if (upstream && status && upstream !== status) return `${upstream}, sent as ${status}`;
  return String(upstream ?? status ?? "");
}

function makeFailure(failure) {
  const { envelope } = failure;
  const id = element("button", { type: "button", class: "link", "data-failure": envelope.correlation_id, "aria-label": `show the failure ${envelope.correlation_id}` }, envelope.correlation_id);
  return element("tr", {},
    element("td", { class: "when" }, clock(failure.at)),
    element("td", {}, failure.key ?? failure.provider ?? "–"),
    element("td", {}, element("span", { class: "class" }, envelope.class), " ", element("strong", {}, envelope.code), " ", element("span", { class: "facts" }, statusWords(failure)),
      ...(failure.fault ? [" ", tag("injected", "odd")] : [])),
    element("td", { class: "message" }, envelope.message),
    element("td", {}, id));
}

function drawFailures(failures) {
  const class_ = byId("class").value;
  const searched = byId("search").value.trim().toLowerCase();
  const shown = failures.filter((failure) => {
    failure.text ??= failureText(failure);
    return (!class_ || failure.envelope.class === class_) && failure.text.includes(searched);
  });
  setText(byId("found"), shown.length === failures.length ? count(failures.length, "failure") : `${shown.length} of ${count(failures.length, "failure")}`);
  keyed(byId("failures").tBodies[0], shown, (failure) => failure.number, makeFailure, () => {});
}

/** One workflow's failures, with everything that was seen, where it may be shown. */
async function showFailure(correlationId) {
  const dialog = byId("failure");
  setText(byId("failure-title"), `Failures of ${correlationId}`);
  const facts = dialog.querySelector("dl"), seen = dialog.querySelector("pre");
  facts.replaceChildren();
  setText(seen, "asking …");
  if (!dialog.open) dialog.showModal();
  try {
    const { failures } = await ask(`/v1/failures/${encodeURIComponent(correlationId)}`, { raw: true });
    const last = failures[failures.length - 1], { envelope } = last;
    for (const [term, value] of [
      ["what", `${envelope.class} ${envelope.code}`], ["message", envelope.message], ["where", last.key ?? last.provider],
      ["status", statusWords(last)], ["verdict", last.verdict], ["rule", last.rule], ["injected by", last.fault],
      ["retry", envelope.retryable ? `makes sense${envelope.retry_after === null ? "" : ` after ${span(envelope.retry_after)}`}` : "is of no use"],
      ["took", last.duration < 1 ? `${Math.round(last.duration * 1000)} ms` : `${numbers.format(last.duration)} s`],
    ]) {
      if (value !== null && value !== undefined) facts.append(element("dt", {}, term), element("dd", {}, value));
    }
    setText(seen, JSON.stringify(failures, null, 2));
  } catch (error) {
    setText(seen, error.message);
  }
}
