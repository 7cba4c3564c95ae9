// The studio's page: one place holds what is known, each view draws from it.
import { $, NONE, ask, colour, dot, get, make, own, percent, post, say, showSample, unpack, win } from "./parts-of-page.js";
import { drawList, setUpList } from "./list.js";
import { drawParts } from "./parts.js";
import { drawProgress } from "./progress.js";

export const known = { classes: [], counts: {}, names: null, sure: null, given: null, queue: [], chosen: [], version: 0, points: null };
const dark = matchMedia("(prefers-color-scheme: dark)");
const frame = $("map");
let frameReady = false, matches = [], options = [], pointed = -1;

const tell = message => frame.contentWindow.postMessage(message, location.origin);

// ---- the answer, and the map's colours ----------------------------------------------------------

export function take(answer) {
  if (!answer || answer.version < known.version) return;
  Object.assign(known, {
    version: answer.version, classes: answer.classes, counts: answer.counts,
    names: unpack(answer.names, Int16Array), sure: unpack(answer.sure, Uint8Array), given: unpack(answer.given, Uint8Array),
  });
  if (answer.queue) known.queue = keepShown(answer.queue);
  $("headline").textContent = answer.headline;
  drawClasses();
  drawCard();
  drawLegend();
  paint();
}

// The sample before a person's eyes stays there, whatever came meanwhile, until it has a label.
function keepShown(queue) {
  const shown = known.queue[0];
  if (!shown || known.given[shown.i]) return queue;
  const name = known.names[shown.i];
  const fresh = { ...shown, suggestion: name < 0 ? null : known.classes[name], sure: known.sure[shown.i] / 255 };
  return [fresh, ...queue.filter(sample => sample.i !== shown.i)];
}

const LEVELS = 4; // shades of doubt

function paint() {
  if (!frameReady || !known.names) return;
  const { names, sure, given } = known, shade = new Uint16Array(names.length);
  for (let i = 0; i < shade.length; i++) {
    const level = given[i] ? LEVELS - 1 : Math.min(LEVELS - 1, sure[i] >> 6);
    shade[i] = names[i] < 0 ? 0 : 1 + names[i] * LEVELS + level;
  }
  const paper = dark.matches ? [20, 23, 27] : [255, 255, 255], palette = [mix(NONE, paper, 0.5)];
  known.classes.forEach((_, index) => palette.push(...[0.3, 0.5, 0.75, 1].map(share => mix(colour(index), paper, share))));
  tell({ act: "paint", shade, palette, at: place(), number: known.version });
}

function mix(hex, paper, share) {
  const part = (at, i) => Math.round(parseInt(hex.slice(at, at + 2), 16) * share + paper[i] * (1 - share));
  return "#" + [1, 3, 5].map((at, i) => part(at, i).toString(16).padStart(2, "0")).join("");
}

// Where the sample on the card, or another one, lies on the map.
function place(i = known.queue[0]?.i) {
  return known.points && i != null ? [known.points.x[i], known.points.y[i]] : null;
}

function drawLegend() {
  $("legend").replaceChildren(...known.classes.map((name, index) => {
    return make("span", { class: "chip" }, dot(index), make("span", {}, own(name), ` (${known.counts[name]?.answer ?? 0})`));
  }));
}

// ---- the queue ----------------------------------------------------------------------------------

function drawCard() {
  const [first, ...rest] = known.queue;
  $("cardName").textContent = first ? first.id : "Every sample has a label or was skipped.";
  $("cardBody").replaceChildren(...(first ? [showSample(first, { large: true })] : []));
  $("suggestion").replaceChildren(...(first?.suggestion ? [own(first.suggestion), `? ${percent(first.sure)}`] : []));
  $("coming").replaceChildren(...rest.map((sample, at) => {
    const inner = sample.picture ? make("img", { src: sample.picture, alt: "" }) : make("span", { dir: "auto" });
    if (!sample.picture) inner.textContent = sample.text?.slice(0, 80) ?? sample.id;
    const button = make("button", { "aria-label": `Bring forward ${sample.id}`, onclick: () => {
      known.queue.unshift(...known.queue.splice(at + 1, 1)); drawCard(); tell({ act: "mark", at: place() }); $("card").focus(); } }, inner);
    return make("li", {}, button);
  }));
}

// The classes that fit what was typed, and the new one that it may name; Enter takes the one pointed at.
function drawClasses() {
  const typed = $("filter").value.trim(), wanted = typed.toLowerCase(), begins = name => name.toLowerCase().startsWith(wanted);
  matches = known.classes.filter(name => name.toLowerCase().includes(wanted)).sort((a, b) => begins(b) - begins(a)).slice(0, 200);
  options = matches.map((name, at) => option(name, at, dot(known.classes.indexOf(name)), at < 9 ? make("kbd", { "aria-hidden": "true" }, String(at + 1)) : null));
  if (typed && !known.classes.some(name => name.toLowerCase() === wanted)) options.push(option(typed, options.length, "New class: "));
  $("classes").replaceChildren(...options);
  point(!typed ? -1 : matches.length && begins(matches[0]) ? 0 : options.length - 1);
}

function option(name, at, before, after = null) {
  const text = make("span", { dir: "auto", class: "name", title: name });
  text.textContent = name;
  return make("button", { role: "option", id: `class-${at}`, "aria-selected": "false", onclick: () => label(name) }, before, text, after);
}

function point(at) {
  options[pointed]?.setAttribute("aria-selected", "false");
  pointed = at;
  options[at]?.setAttribute("aria-selected", "true");
  options[at]?.scrollIntoView({ block: "nearest" });
  if (at < 0) $("filter").removeAttribute("aria-activedescendant"); else $("filter").setAttribute("aria-activedescendant", `class-${at}`);
}

export async function send(name, words) {
  const answer = await post(name, words);
  take(answer);
  performance.mark(`answer-${answer.version}`);
  return answer;
}

let busy = Promise.resolve();
export function label(name, samples = null) {
  const chosen = samples ?? (known.queue[0] ? [known.queue[0].i] : []);
  if (!name?.trim() || !chosen.length) return busy;
  $("filter").value = "";
  if (!samples) { known.queue.shift(); drawCard(); } // the next is there at once
  busy = busy.then(() => send("label", { samples: chosen, label: name, seen: known.version }))
    .catch(() => get("answer").then(take));
  return busy;
}

function act(name, words = {}) {
  busy = busy.then(() => send(name, words)).catch(() => get("answer").then(take));
  return busy;
}

const skip = () => { const first = known.queue.shift(); drawCard(); if (first) act("skip", { samples: [first.i] }); };
const accept = () => known.queue[0]?.suggestion && label(known.queue[0].suggestion);

function keys(event) {
  const typing = event.target.closest("input, textarea, select, dialog, details");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("filter")) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) { event.preventDefault(); point((Math.max(pointed, step < 0 ? 0 : -1) + step + options.length) % options.length); }
    else if (event.key === "Enter") { event.preventDefault(); if (pointed >= 0) options[pointed].click(); else accept(); $("card").focus(); }
    else if (event.key === "Escape") { $("filter").value = ""; drawClasses(); $("card").focus(); }
    else if (/^[1-9]$/.test(event.key) && !$("filter").value && matches[event.key - 1]) { event.preventDefault(); label(matches[event.key - 1]); }
    return;
  }
  if (typing || $("label").hidden) return;
  const onButton = event.target.closest("button, a, summary");
  if (/^[1-9]$/.test(event.key)) { if (matches[event.key - 1]) { event.preventDefault(); label(matches[event.key - 1]); } }
  else if (event.key === "Enter" && !onButton) { event.preventDefault(); accept(); }
  else if (event.key === "s" || event.key === "S") skip();
  else if (event.key === "u" || event.key === "U") act("undo");
  else if (event.key === "/") { event.preventDefault(); $("filter").focus(); }
  else if (event.key.length === 1 && event.key.trim()) $("filter").focus(); // the letter lands in the field
}

// ---- the map ------------------------------------------------------------------------------------

async function drawMap() {
  if (!frameReady || !known.points) return;
  tell({ act: "draw", x: known.points.x, y: known.points.y, dark: dark.matches, at: place() });
}

async function loadPoints() {
  const found = await get("points");
  known.points = { x: unpack(found.x, Float32Array), y: unpack(found.y, Float32Array), about: found.about };
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
      const name = await ask(`Label ${chosen.length} samples`, "Class", mostCommon(chosen), known.classes);
      if (name) { await label(name, chosen); tell({ act: "clear" }); select([]); }
    } }, "Label them"), " ",
    make("button", { onclick: () => { tell({ act: "clear" }); select([]); } }, "Let go"));
}

function mostCommon(chosen) {
  const counts = new Map();
  for (const i of chosen) if (known.names[i] >= 0) counts.set(known.names[i], (counts.get(known.names[i]) ?? 0) + 1);
  const best = [...counts].sort((a, b) => b[1] - a[1])[0];
  return best ? known.classes[best[0]] : "";
}

export async function showDetail(i) {
  const sample = await get("sample", { i });
  const title = make("h2", { dir: "auto" });
  title.textContent = sample.id;
  const said = make("p", {}, ...(sample.given ? ["Labelled ", own(sample.given), "."] : sample.suggestion ? [own(sample.suggestion), `, ${percent(sample.sure)}.`] : ["No answer yet."]));
  const why = make("ul", { "aria-label": "Which parts speak for and against it" });
  for (const line of sample.because ?? []) { const item = make("li", { dir: "auto" }); item.textContent = line; why.append(item); }
  const near = make("p", { class: "row" }, "Neighbours: ", ...sample.neighbours.map(other => {
    const button = make("button", { onclick: () => showDetail(other.i) });
    button.append(other.picture ? make("img", { src: other.picture, alt: other.id, width: 40, height: 40 }) : other.id.slice(0, 30));
    return button;
  }));
  $("detail").replaceChildren(title, showSample(sample), said, why, near, make("p", { class: "row" },
    make("button", { onclick: async () => { const name = await ask("Label this sample", "Class", sample.suggestion ?? "", known.classes); if (name) label(name, [i]); } }, "Label"),
    make("button", { onclick: async () => { const group = [i, ...sample.neighbours.map(other => other.i)];
      const name = await ask(`Label this and its ${sample.neighbours.length} neighbours`, "Class", sample.suggestion ?? "", known.classes); if (name) label(name, group); } }, "Label it and its neighbours"),
    make("button", { onclick: () => { $("detail").hidden = true; } }, "Close")));
  $("detail").hidden = false;
  $("detail").scrollIntoView({ block: "nearest" });
  tell({ act: "mark", at: place(i) });
}

// ---- tabs, news, start --------------------------------------------------------------------------

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

async function begin() {
  const state = await get("state");
  $("source").textContent = state.source;
  document.title = `${state.source} – Partwise studio`;
  $("wait").hidden = state.ready;
  if (!state.ready) { $("waitText").textContent = state.doing; return; }
  await Promise.all([loadPoints(), get("answer").then(take)]);
  if (!$("progress").hidden) drawProgress(dark.matches);
  $("card").focus();
}

const news = new EventSource("/api/events");
news.addEventListener("doing", event => {
  const { text, share } = JSON.parse(event.data);
  $("wait").hidden = false;
  $("waitText").textContent = text;
  if (share == null) $("waitBar").removeAttribute("value"); else $("waitBar").value = share;
});
news.addEventListener("ready", begin);
news.addEventListener("answer", async event => {
  const { version, by } = JSON.parse(event.data);
  if (by !== win && version > known.version) take(await get("answer")); // this window's own act brings its answer itself
});
news.addEventListener("progress", () => { if (!$("progress").hidden) drawProgress(dark.matches); });
news.addEventListener("codes", async event => { $("partsNews").textContent = JSON.parse(event.data).text; await loadPoints(); take(await get("answer")); if (!$("parts").hidden) drawParts(); });
news.addEventListener("trouble", event => say(JSON.parse(event.data).text));

for (const name of VIEWS) { $(`tab-${name}`).addEventListener("click", () => show(name)); $(`tab-${name}`).addEventListener("keydown", tabKeys); }
$("skip").addEventListener("click", skip);
$("undo").addEventListener("click", () => act("undo"));
$("filter").addEventListener("input", drawClasses);
document.addEventListener("keydown", keys);
dark.addEventListener("change", () => { drawMap(); drawLegend(); });
setUpList();
begin();
