// Steering a breaker: asked once, with a reason, and told what it will do before it does it.

const EFFECTS = {
  open: "Every call to it is refused, until the time is over, or until it is closed or reset.",
  close: "Calls pass again. With a time it stays closed for so long, whatever fails.",
  reset: "It starts over: closed, figures at zero, nothing forced.",
  observe: "It goes on computing and showing, and refuses nothing.",
  enforce: "What it decides counts again.",
};

let steered = null;

function steer(verb, key) {
  const dialog = byId("steer"), form = dialog.querySelector("form");
  steered = { verb, key };
  form.reset();
  setText(byId("steer-title"), `${verb} ${key}?`);
  setText(byId("steer-effect"), EFFECTS[verb]);
  setText(byId("steer-error"), "");
  setText(form.querySelector(".sure"), verb);
  byId("steer-for").hidden = verb === "reset";
  byId("steer-token").hidden = true;
  dialog.showModal();
}

async function carryOut(form) {
  const { verb, key } = steered;
  const order = {};
  for (const name of ["reason", "for"]) {
    const value = form.elements[name].value.trim();
    if (value) order[name] = value;
  }
  if (form.elements.token.value) token = form.elements.token.value;
  const sure = form.querySelector(".sure");
  sure.disabled = true;
  try {
    await ask(`/breakers/${encodeURIComponent(key.toWellFormed?.() ?? key)}/${verb}`, { order });
    byId("steer").close();
    say(`${key}: ${verb} is done`);
    refreshSoon();
  } catch (error) {
    if (error.status === 401) {
      token = null;
      byId("steer-token").hidden = false;
    }
    setText(byId("steer-error"), error.status ? error.message : `The daemon does not answer: ${error.message}.`);
  } finally {
    sure.disabled = false;
  }
}

byId("steer").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  carryOut(event.target);
});
byId("steer").querySelector("[name=cancel]").addEventListener("click", () => byId("steer").close());
byId("failure").querySelector("[name=close]").addEventListener("click", () => byId("failure").close());
document.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (button?.dataset.verb) steer(button.dataset.verb, button.dataset.key);
  else if (button?.dataset.failure) showFailure(button.dataset.failure);
});
