// The page of the studio. `known` contains the data that the server sent; all views are drawn from it.
import { $, NONE, ask, colour, dot, get, make, own, percent, preload, say, showSample, unpack, windowName } from "./elements.js";
import { add, cancel, connected, pending } from "./requests.js";
import { drawList, setUpList } from "./list.js";
import { drawParts } from "./parts.js";
import { drawProgress } from "./progress.js";

export const known = { classes: [], counts: {}, labels: null, probabilities: null, given: null, queue: [], chosen: [], start: "", version: 0, points: null };
const dark = matchMedia("(prefers-color-scheme: dark)");
const frame = $("map");
let frameReady = false, matches = [], options = [], pointed = -1, drawn = "";
const order = []; // classes in the order in which this window received them, so that their numbers do not change
const handled = new Set(); // samples that this window labelled or skipped, and that it must not show again
const changes = []; // changes that this window made since it was loaded, for undo

const toMap = message => frame.contentWindow.postMessage(message, location.origin);

// ---- predictions and colours of the map ---------------------------------------------------------

export function take(answer) {
  if (!answer) return;
  if (answer.start === known.start && answer.version < known.version) return; // after each start of the server, versions are counted from 0
  Object.assign(known, {
    start: answer.start, version: answer.version, classes: answer.classes, counts: answer.counts,
    labels: unpack(answer.labels, Int16Array), probabilities: unpack(answer.probabilities, Uint8Array), given: unpack(answer.given, Uint8Array),
  });
  if (answer.queue) known.queue = keepShown(answer.queue);
  $("headline").textContent = answer.headline;
  drawClasses();
  drawCard();
  drawLegend();
  paint();
}

// The sample on the card stays until it is labelled, even if new predictions arrive. A missing suggestion is added, but a shown one is not changed.
function keepShown(queue) {
  const fresh = queue.filter(sample => !handled.has(sample.i)), shown = known.queue[0];
  if (!shown) return fresh;
  const same = fresh.find(sample => sample.i === shown.i);
  if (!shown.suggestion) Object.assign(shown, suggestionFor(shown.i), same?.values ? { values: same.values } : {});
  return [shown, ...fresh.filter(sample => sample.i !== shown.i)];
}

function suggestionFor(i) {
  const name = known.labels[i];
  return name < 0 || known.given[i] ? {} : { suggestion: known.classes[name], probability: known.probabilities[i] / 255 };
}

// Keep more samples than one answer contains, in case the last ones are still being saved.
let refilling = false;
async function refill() {
  if (refilling || known.queue.length > 2 || !pending()) return;
  refilling = true;
  try {
    const found = await get("next", { n: Math.min(50, 9 + pending()) });
    const there = new Set(known.queue.map(sample => sample.i));
    known.queue.push(...found.filter(sample => !handled.has(sample.i) && !there.has(sample.i)));
    drawCard();
  } catch { /* the next answer contains some */ }
  refilling = false;
}

const LEVELS = 4; // number of shades that show the uncertainty of a prediction

function paint() {
  if (!frameReady || !known.labels) return;
  const { labels, probabilities, given } = known, shade = new Uint16Array(labels.length);
  for (let i = 0; i < shade.length; i++) {
    const level = given[i] ? LEVELS - 1 : Math.min(LEVELS - 1, probabilities[i] >> 6);
    shade[i] = labels[i] < 0 ? 0 : 1 + labels[i] * LEVELS + level;
  }
  const paper = dark.matches ? [20, 23, 27] : [255, 255, 255], palette = [mix(NONE, paper, 0.5)];
  known.classes.forEach((_, index) => palette.push(...[0.3, 0.5, 0.75, 1].map(share => mix(colour(index), paper, share))));
  toMap({ act: "paint", shade, palette, at: place(), number: known.version });
}

function mix(hex, paper, share) {
  const part = (at, i) => Math.round(parseInt(hex.slice(at, at + 2), 16) * share + paper[i] * (1 - share));
  return "#" + [1, 3, 5].map((at, i) => part(at, i).toString(16).padStart(2, "0")).join("");
}

// Return the position on the map of the sample on the card, or of another sample.
function place(i = known.queue[0]?.i) {
  return known.points && i != null ? [known.points.x[i], known.points.y[i]] : null;
}

function drawLegend() {
  $("legend").replaceChildren(...known.classes.map((name, index) =>
    make("span", { class: "chip" }, dot(index), make("span", {}, own(name), ` (${known.counts[name]?.samples ?? 0})`))));
}

// ---- the card and the queue ---------------------------------------------------------------------

function drawCard() {
  const [first, ...rest] = known.queue;
  if (first && !first.seen) first.seen = { version: known.version, start: known.start };
  $("cardName").textContent = first ? first.id : pending() ? "Waiting for the next samples …" : "Every sample has a label or was skipped.";
  const content = `${first?.i} ${first?.values ? first.suggestion : ""}`; // the bars next to a row of a table depend on the suggestion
  if ($("cardBody").dataset.content !== content) $("cardBody").replaceChildren(...(first ? [showSample(first, { large: true })] : [])); // without a change, keep the scroll position
  $("cardBody").dataset.content = content;
  $("suggestion").replaceChildren(...(isTaken(first) ? ["Another window labelled this sample ", own(known.classes[known.labels[first.i]]), "."]
    : first?.suggestion ? [own(first.suggestion), `? ${percent(first.probability)}`] : []));
  preload(rest[0]);
  $("coming").replaceChildren(...rest.map((sample, at) => {
    const inner = sample.picture ? make("img", { src: sample.picture, alt: "" }) : make("span", { dir: "auto" });
    if (!sample.picture) inner.textContent = sample.text?.slice(0, 80) ?? sample.values.slice(0, 2).map(([, value]) => value).join(", ");
    const button = make("button", { "aria-label": `Bring forward ${sample.id}`, onclick: () => {
      known.queue.unshift(...known.queue.splice(at + 1, 1)); drawCard(); toMap({ act: "mark", at: place() }); $("card").focus(); } }, inner);
    return make("li", {}, button);
  }));
}

// Another window has labelled the sample on the card. The server then refuses a different label from this window.
const isTaken = card => Boolean(card && known.given?.[card.i] && !pending() && !handled.has(card.i) && card.seen.version < known.version);

// The first option is the class with the typed name, or a new class; Enter chooses it. Then follow all classes whose name contains the typed text.
function drawClasses() {
  const typed = $("filter").value.trim(), wanted = typed.toLowerCase(), begins = name => name.toLowerCase().startsWith(wanted);
  const same = name => name.toLowerCase() === wanted;
  if (!pending()) order.splice(0, order.length, ...order.filter(name => known.classes.includes(name))); // remove classes that were renamed, deleted or undone
  order.push(...known.classes.filter(name => !order.includes(name)));
  matches = order.filter(name => name.toLowerCase().includes(wanted))
    .sort((a, b) => (b === typed) - (a === typed) || same(b) - same(a) || begins(b) - begins(a)).slice(0, 200);
  const aim = options[pointed]?.value;
  options = matches.map((name, at) => option(name, at, dot(known.classes.indexOf(name)), at < 9 ? make("kbd", { "aria-hidden": "true" }, String(at + 1)) : null));
  if (typed && !matches.some(same)) options.unshift(option(typed, options.length, "New class: "));
  const stays = typed === drawn ? options.findIndex(one => one.value === aim) : -1; // keep an option that was chosen with the arrow keys before an update
  $("classes").replaceChildren(...options);
  drawn = typed;
  point(stays >= 0 ? stays : typed ? 0 : -1);
}

function option(name, at, before, after = null) {
  const text = make("span", { dir: "auto", class: "name", title: name });
  text.textContent = name;
  return make("button", { role: "option", value: name, id: `class-${at}`, "aria-selected": "false", onclick: () => label(name) }, before, text, after);
}

function point(at) {
  options[pointed]?.setAttribute("aria-selected", "false");
  pointed = at;
  options[at]?.setAttribute("aria-selected", "true");
  options[at]?.scrollIntoView({ block: "nearest" });
  if (at < 0) $("filter").removeAttribute("aria-activedescendant"); else $("filter").setAttribute("aria-activedescendant", `class-${at}`);
}

// Send a change. The page continues at once, and the request is repeated until the server confirms it.
function perform(name, words, card = null) {
  const request = add(name, words), change = { request, card, samples: words.samples ?? [] };
  if (name !== "undo") changes.push(change);
  for (const i of change.samples) if (words.label === null) handled.delete(i); else handled.add(i);
  refill();
  return request.done.then(answer => {
    if (!answer) forget(change);
    take(answer);
    if (answer) performance.mark(`answer-${answer.version}`);
    else get("predictions").then(take).catch(() => {});
    if (!known.queue.length) drawCard();
    return answer;
  });
}

// Handle a change that the server refused, or that was withdrawn before it was sent.
function forget(change) {
  const at = changes.indexOf(change);
  if (at >= 0) changes.splice(at, 1);
  for (const i of change.samples) handled.delete(i);
}

// Label samples, by default the one on the card. `seen` is the version of the predictions that the user saw.
export function label(name, samples = null, seen = known.version) {
  const first = samples ? null : known.queue[0];
  const chosen = samples ?? (first ? [first.i] : []);
  if (!name?.trim() || !chosen.length) return Promise.resolve();
  const wanted = name.trim().replace(/\s+/g, " "), shown = first?.seen ?? { version: seen, start: known.start };
  if (!order.includes(wanted)) order.push(wanted);
  $("filter").value = "";
  if (first) next();
  const done = perform("label", { samples: chosen, label: wanted, seen: shown.version, start: shown.start }, first);
  drawClasses(); // draw the classes after the request is stored, since a class without labels or requests would be removed
  return done;
}

export const unlabel = (samples, seen) => perform("label", { samples, label: null, seen, start: known.start });
export const rename = (name, to) => perform("rename", { class: name, to });

// Show the next sample at once, with the current suggestion.
function next() {
  known.queue.shift();
  if (known.queue[0] && known.labels) Object.assign(known.queue[0], suggestionFor(known.queue[0].i));
  drawCard();
  toMap({ act: "mark", at: place() });
}

function skip() {
  const first = known.queue[0], taken = isTaken(first);
  if (!first) return;
  if (taken) handled.add(first.i);
  next();
  if (!taken) perform("skip", { samples: [first.i] }, first);
}

// Return to the sample whose change is undone. After a reload, the server answers which sample that was.
function undo() {
  const last = changes.at(-1);
  if (!last) { perform("undo", {}).then(answer => !changes.length && comeBack(answer?.undone?.[0])); return; }
  changes.pop();
  for (const i of last.samples) handled.delete(i);
  if (!cancel(last.request)) perform("undo", { of: last.request.key });
  comeBack(last.card);
}

function comeBack(card) {
  if (!card) return;
  delete card.seen;
  handled.delete(card.i);
  known.queue = [card, ...known.queue.filter(sample => sample.i !== card.i)];
  drawCard();
  toMap({ act: "mark", at: place() });
}

// ---- the keyboard -------------------------------------------------------------------------------

const OTHER = "none of these"; // an ordinary class, for samples that belong to no other class
const accept = () => { const first = known.queue[0]; if (first?.suggestion && !isTaken(first)) label(first.suggestion); };

// All typed characters go to the class field, because the name of a class may begin with any letter or digit. Keys for actions are not characters, or need Alt.
function keys(event) {
  const field = $("filter"), target = event.target, inField = target === field, empty = !field.value;
  if (event.isComposing || $("label").hidden || $("ask").open) return;
  if (!inField && target.closest("textarea, select, input:not([type=checkbox])")) return;
  const does = act => { event.preventDefault(); if (!event.repeat) act(); };
  const digit = event.altKey && !event.ctrlKey && !event.metaKey && /^Digit(\d)$/.exec(event.code)?.[1];
  if (digit) { const name = digit === "0" ? OTHER : matches[digit - 1]; if (name) does(() => label(name)); return; }
  if ((event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph")) return;
  if (!inField && isTyped(event, empty)) { target.closest("dialog")?.close(); field.focus(); return; } // the field receives the character
  if (target.closest("dialog")) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], onTab = target.closest("[role=tab]");
  if (inField && step && options.length) { event.preventDefault(); point((Math.max(pointed, step < 0 ? 0 : -1) + step + options.length) % options.length); }
  else if (event.key === "Enter" && !target.closest("button, a, summary")) does(() => { if (inField && pointed >= 0) options[pointed].click(); else if (empty) accept(); $("card").focus(); });
  else if (inField && event.key === "Escape") { field.value = ""; drawClasses(); $("card").focus(); }
  else if (event.key === "ArrowRight" && empty && !onTab) does(skip);
  else if (event.key === "ArrowLeft" && empty && !onTab) does(undo);
}

// No name begins with a space, so a space presses the focused button. Inside a name, it is typed.
const isTyped = (event, empty) => (event.key.length === 1 && (event.key !== " " || !empty)) || event.key === "Dead" || event.key === "Process";

// ---- the map ------------------------------------------------------------------------------------

async function drawMap() {
  if (!frameReady || !known.points) return;
  toMap({ act: "draw", x: known.points.x, y: known.points.y, dark: dark.matches, at: place() });
}

async function loadPoints() {
  const found = await get("points");
  known.points = { x: unpack(found.x, Float32Array), y: unpack(found.y, Float32Array) };
  drawMap();
}

addEventListener("message", event => {
  if (event.origin !== location.origin || event.source !== frame.contentWindow) return;
  const { kind, i, chosen, number } = event.data;
  if (kind === "ready") { frameReady = true; drawMap(); }
  else if (kind === "drawn") paint();
  else if (kind === "painted") { performance.mark(`painted-${number}`); document.body.dataset.painted = number; }
  else if (kind === "pick") showDetail(i);
  else if (kind === "select") select(chosen);
});

export function select(chosen) {
  known.chosen = chosen;
  $("selection").replaceChildren();
  if (!chosen.length) return;
  $("selection").append(`${chosen.length} samples chosen. `,
    make("button", { id: "labelChosen", onclick: async () => {
      const seen = known.version, name = await ask(`Label ${chosen.length} samples`, "Class", mostCommon(chosen), known.classes);
      if (name) { await label(name, chosen, seen); toMap({ act: "clear" }); select([]); }
    } }, "Label them"), " ",
    make("button", { onclick: () => { toMap({ act: "clear" }); select([]); } }, "Clear the selection"));
}

function mostCommon(chosen) {
  const counts = new Map();
  for (const i of chosen) if (known.labels[i] >= 0) counts.set(known.labels[i], (counts.get(known.labels[i]) ?? 0) + 1);
  const best = [...counts].sort((a, b) => b[1] - a[1])[0];
  return best ? known.classes[best[0]] : "";
}

export async function showDetail(i) {
  const sample = await get("sample", { i }), seen = sample.version;
  const title = make("h2", { dir: "auto" });
  title.textContent = sample.id;
  const labelled = make("p", {}, ...(sample.given ? ["Labelled ", own(sample.given), "."] : sample.suggestion ? ["Predicted ", own(sample.suggestion), `, ${percent(sample.probability)}.`] : ["No prediction yet."]));
  const why = make("ul", { "aria-label": "Parts that speak for and against it" });
  for (const line of sample.because ?? []) { const item = make("li", { dir: "auto" }); item.textContent = line; why.append(item); }
  const near = make("p", { class: "row" }, "Neighbours: ", ...sample.neighbours.map(other => {
    const button = make("button", { onclick: () => showDetail(other.i) });
    button.append(other.picture ? make("img", { src: other.picture, alt: other.id, width: 40, height: 40 }) : other.id.slice(0, 30));
    return button;
  }));
  const labelAll = async (title, samples) => {
    const name = await ask(title, "Class", sample.suggestion ?? "", known.classes);
    if (name) label(name, samples, seen);
  };
  const group = [i, ...sample.neighbours.map(other => other.i)];
  $("detail").replaceChildren(title, showSample(sample, { large: true }), labelled, why, near, make("p", { class: "row" },
    make("button", { onclick: () => labelAll("Label this sample", [i]) }, "Label"),
    make("button", { onclick: () => labelAll(`Label this and its ${group.length - 1} neighbours`, group) }, "Label it and its neighbours"),
    sample.given ? make("button", { onclick: () => unlabel([i], seen).then(() => showDetail(i)) }, "Remove the label") : null,
    make("button", { onclick: () => { $("detail").hidden = true; } }, "Close")));
  $("detail").hidden = false;
  $("detail").scrollIntoView({ block: "nearest" });
  toMap({ act: "mark", at: place(i) });
}

// ---- tabs, events, start ------------------------------------------------------------------------

const VIEWS = ["label", "list", "parts", "progress"];
const DRAW = { list: () => drawList(), parts: drawParts, progress: () => drawProgress(dark.matches) };

function show(view) {
  for (const name of VIEWS) {
    $(name).hidden = name !== view;
    $(`tab-${name}`).setAttribute("aria-selected", String(name === view));
    $(`tab-${name}`).tabIndex = name === view ? 0 : -1;
  }
  DRAW[view]?.();
}

function tabKeys(event) {
  const at = VIEWS.indexOf(event.target.id.slice(4));
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
  if (to === undefined) return;
  const view = VIEWS[(to + VIEWS.length) % VIEWS.length];
  show(view);
  $(`tab-${view}`).focus();
}

function drawNotes({ source, preparation, decision, notes }) {
  const name = source.split(/[\\/]/).filter(Boolean).at(-1) ?? source;
  $("source").textContent = name;
  $("source").title = source;
  document.title = `${name} – Partwise studio`;
  $("decision").textContent = decision;
  $("preparation").textContent = preparation;
  $("notes").replaceChildren(...notes.map(note => { const item = make("li", { dir: "auto" }); item.textContent = note; return item; }));
}

let clock = 0;
function drawWait({ ready, stage, seconds, expected }) {
  clearInterval(clock);
  $("wait").hidden = ready;
  if (ready) return;
  const began = Date.now() - 1000 * seconds;
  const tick = () => { $("waitText").textContent = `${stage}. The first start usually takes about ${expected} s; ${Math.round((Date.now() - began) / 1000)} s so far.`; };
  clock = setInterval(tick, 1000);
  tick();
}

let begun = false;
async function begin() {
  try {
    const state = await get("state");
    drawNotes(state);
    drawWait(state);
    if (!state.ready) return;
    await Promise.all([loadPoints(), get("predictions").then(take)]);
    if (!$("progress").hidden) drawProgress(dark.matches);
    if (!begun) $("card").focus();
    begun = true;
  } catch { /* the stream of events reports when the server answers again */ }
}

const EVENTS = {
  hello: () => { connected(true); begin(); },
  stage: state => { if (!state.ready) drawWait(state); },
  ready: begin,
  notes: drawNotes,
  predictions: async ({ version, by }) => { if (by !== windowName && version > known.version) take(await get("predictions")); }, // requests of this window receive predictions in their answers
  progress: () => { if (!$("progress").hidden) drawProgress(dark.matches); },
  parts: async ({ text }) => { $("partsNews").textContent = text; await loadPoints(); take(await get("predictions")); if (!$("parts").hidden) drawParts(); },
  trouble: ({ text }) => say(text),
};
function listen() {
  const events = new EventSource("/api/events");
  const react = (act, event) => Promise.resolve(act(JSON.parse(event.data))).catch(() => {}); // errors of requests have already been shown
  for (const [kind, act] of Object.entries(EVENTS)) events.addEventListener(kind, event => react(act, event));
  events.addEventListener("error", () => {
    connected(false);
    if (!begun) begin();
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

for (const name of VIEWS) {
  $(`tab-${name}`).addEventListener("click", event => { show(name); if (name === "label" && event.detail) $("card").focus(); }); // after a click, Enter accepts the suggestion
  $(`tab-${name}`).addEventListener("keydown", tabKeys);
}
$("skip").addEventListener("click", skip);
$("other").addEventListener("click", () => label(OTHER));
$("undo").addEventListener("click", undo);
$("filter").addEventListener("input", drawClasses);
document.addEventListener("keydown", keys);
dark.addEventListener("change", () => { drawMap(); drawLegend(); });
setUpList();
listen();
