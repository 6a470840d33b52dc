// How the page is written: text nodes and attributes, never markup, so that a name of a model or a
// message of an upstream is shown as it is and can do nothing. Only what changed is touched.

const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

/** An element with attributes (a value of null leaves one out) and children; texts stay texts. */
function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for a drawing. */
function drawn(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

function setText(node, text) {
  const value = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== value) node.textContent = value;
}

/**
 * Makes the children of `parent` those of `items`, in order. A node is made once for each key and
 * brought up to date from then on.
 */
function keyed(parent, items, keyOf, make, update) {
  const known = (parent.known ??= new Map());
  const kept = new Set();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = known.get(key);
    if (!node) known.set(key, (node = make(item)));
    update(node, item);
    kept.add(key);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const [key, node] of known) {
    if (kept.has(key)) continue;
    known.delete(key);
    node.remove();
  }
}

/** A state or verdict as a word with a shape of its own: colour is never the only sign. */
function tag(word, tone) {
  return element("span", { class: "tag", "data-tone": tone }, word);
}

function setTag(node, word, tone) {
  setText(node, word);
  setAttribute(node, "data-tone", tone);
}

// Clocks: an element that counts, down to a time or up from one. `tick` keeps them all going.

/** An element that says how long it is until `at` (milliseconds since the epoch, this machine's). */
function setUntil(node, at) {
  setAttribute(node, "data-until", at === null ? null : Math.round(at));
  if (at === null) setText(node, "");
  else tickOne(node);
}

/** An element that says how long ago `at` was. */
function setSince(node, at) {
  setAttribute(node, "data-since", at === null ? null : Math.round(at));
  if (at === null) setText(node, "");
  else tickOne(node);
}

function tickOne(node) {
  const until = node.getAttribute("data-until");
  if (until !== null) setText(node, countdown((Number(until) - Date.now()) / 1000));
  else setText(node, `${span((Date.now() - Number(node.getAttribute("data-since"))) / 1000)} ago`);
}

function tick() {
  for (const node of document.querySelectorAll("[data-until], [data-since]")) tickOne(node);
}

// Charts: a strip of bars. Kinds differ in height as well as in colour.

/** Bars side by side; each is `{value, kind}`, the highest value reaches the top. */
function bars(values, kind) {
  const most = Math.max(1, ...values);
  const chart = drawn("svg", { class: "bars", viewBox: `0 0 ${values.length * 4} 24`, preserveAspectRatio: "none", "aria-hidden": "true" });
  values.forEach((value, index) => {
    if (!value) return;
    const height = Math.max(2, (24 * value) / most);
    chart.append(drawn("rect", { x: index * 4, y: 24 - height, width: 3, height, "data-kind": kind }));
  });
  return chart;
}
