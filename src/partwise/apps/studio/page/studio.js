// The studio's page: one place holds what is known, each view draws from it.
import { $, NONE, ask, colour, dot, get, make, own, percent, say, showSample, unpack, win } from "./parts-of-page.js";
import { add, cancel, connected, pending } from "./acts.js";
import { drawList, setUpList } from "./list.js";
import { drawParts } from "./parts.js";
import { drawProgress } from "./progress.js";

export const known = { classes: [], counts: {}, names: null, sure: null, given: null, queue: [], chosen: [], start: "", version: 0, points: null };
const dark = matchMedia("(prefers-color-scheme: dark)");
const frame = $("map");
let frameReady = false, matches = [], options = [], pointed = -1, drawn = "";
const order = []; // classes as this window met them: their numbers never move under the fingers
const handled = new Set(); // samples that this window labelled or skipped: they do not come back
const acts = []; // what this window did, for undo

const tell = message => frame.contentWindow.postMessage(message, location.origin);

// ---- the answer, and the map's colours ----------------------------------------------------------

export function take(answer) {
  if (!answer) return;
  if (answer.start === known.start && answer.version < known.version) return; // another start counts anew
  Object.assign(known, {
    start: answer.start, version: answer.version, classes: answer.classes, counts: answer.counts,
    names: unpack(answer.names, Int16Array), sure: unpack(answer.sure, Uint8Array), given: unpack(answer.given, Uint8Array),
  });
  if (answer.queue) known.queue = keepShown(answer.queue);
  $("headline").textContent = answer.headline;
  drawClasses();
  drawCard();
  drawLegend();
  paint();
}

// The card before a person's eyes stays as it is, whatever came meanwhile, until it has a label; a suggestion may come, none may change.
function keepShown(queue) {
  const fresh = queue.filter(sample => !handled.has(sample.i)), shown = known.queue[0];
  if (!shown) return fresh;
  if (!shown.suggestion) Object.assign(shown, suggestionFor(shown.i));
  return [shown, ...fresh.filter(sample => sample.i !== shown.i)];
}

function suggestionFor(i) {
  const name = known.names[i];
  return name < 0 || known.given[i] ? {} : { suggestion: known.classes[name], sure: known.sure[i] / 255 };
}

// More cards than an answer brings, where those of the last ones are still under way.
let refilling = false;
async function refill() {
  if (refilling || known.queue.length > 2 || !pending()) return;
  refilling = true;
  try {
    const found = await get("next", { n: Math.min(50, 9 + pending()) });
    const there = new Set(known.queue.map(sample => sample.i));
    known.queue.push(...found.filter(sample => !handled.has(sample.i) && !there.has(sample.i)));
    drawCard();
  } catch { /* the next answer brings some */ }
  refilling = false;
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
  $("cardName").textContent = first ? first.id : pending() ? "Waiting for the next samples …" : "Every sample has a label or was skipped.";
  if ($("cardBody").dataset.i !== String(first?.i)) $("cardBody").replaceChildren(...(first ? [showSample(first, { large: true })] : [])); // else it stays, as far as it was read
  $("cardBody").dataset.i = String(first?.i);
  $("suggestion").replaceChildren(...(first?.suggestion ? [own(first.suggestion), `? ${percent(first.sure)}`] : []));
  $("coming").replaceChildren(...rest.map((sample, at) => {
    const inner = sample.picture ? make("img", { src: sample.picture, alt: "" }) : make("span", { dir: "auto" });
    if (!sample.picture) inner.textContent = sample.text?.slice(0, 80) ?? sample.id;
    const button = make("button", { "aria-label": `Bring forward ${sample.id}`, onclick: () => {
      known.queue.unshift(...known.queue.splice(at + 1, 1)); drawCard(); tell({ act: "mark", at: place() }); $("card").focus(); } }, inner);
    return make("li", {}, button);
  }));
}

// What was typed comes first, as the class of that name or a new one, and Enter takes it; then the classes that hold it.
function drawClasses() {
  const typed = $("filter").value.trim(), wanted = typed.toLowerCase(), begins = name => name.toLowerCase().startsWith(wanted);
  const same = name => name.toLowerCase() === wanted;
  if (!pending()) order.splice(0, order.length, ...order.filter(name => known.classes.includes(name))); // gone: renamed, deleted, undone
  order.push(...known.classes.filter(name => !order.includes(name)));
  matches = order.filter(name => name.toLowerCase().includes(wanted))
    .sort((a, b) => (b === typed) - (a === typed) || same(b) - same(a) || begins(b) - begins(a)).slice(0, 200);
  const numbers = !typed && digitsChoose(), aim = options[pointed]?.value;
  options = matches.map((name, at) => option(name, at, dot(known.classes.indexOf(name)), numbers && at < 9 ? make("kbd", { "aria-hidden": "true" }, String(at + 1)) : null));
  if (typed && !matches.some(same)) options.unshift(option(typed, options.length, "New class: "));
  const stays = typed === drawn ? options.findIndex(one => one.value === aim) : -1; // chosen by the arrows before news came
  $("classes").replaceChildren(...options);
  drawn = typed;
  point(stays >= 0 ? stays : typed ? 0 : -1);
}

// Digits choose where no class begins with one: there they are typed, as letters are.
const digitsChoose = () => !order.some(name => /^\p{Nd}/u.test(name));

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

// Do something to samples: the page goes on at once, and the act is sent until the studio has it.
function perform(name, words, cards = []) {
  const act = add(name, words), entry = { act, cards, samples: words.samples ?? [] };
  if (name !== "undo") acts.push(entry);
  for (const i of entry.samples) if (words.label === null) handled.delete(i); else handled.add(i);
  refill();
  return act.done.then(answer => {
    if (!answer) forget(entry);
    take(answer);
    if (answer) performance.mark(`answer-${answer.version}`);
    else get("answer").then(take).catch(() => {});
    if (!known.queue.length) drawCard();
    return answer;
  });
}

// It was refused, or taken back before it was sent.
function forget(entry) {
  const at = acts.indexOf(entry);
  if (at >= 0) acts.splice(at, 1);
  for (const i of entry.samples) handled.delete(i);
}

export function label(name, samples = null) {
  const first = samples ? null : known.queue[0];
  const chosen = samples ?? (first ? [first.i] : []);
  if (!name?.trim() || !chosen.length) return Promise.resolve();
  const wanted = name.trim().replace(/\s+/g, " ");
  if (!order.includes(wanted)) order.push(wanted);
  $("filter").value = "";
  if (first) next();
  const done = perform("label", { samples: chosen, label: wanted, seen: known.version, start: known.start }, first ? [first] : []);
  drawClasses(); // after it: a class that nobody is about to save would be forgotten
  return done;
}

export const unlabel = samples => perform("label", { samples, label: null, seen: known.version, start: known.start });
export const rename = (name, to) => perform("rename", { class: name, to });

// The next card is there at once, with the suggestion of now.
function next() {
  known.queue.shift();
  if (known.queue[0] && known.names) Object.assign(known.queue[0], suggestionFor(known.queue[0].i));
  drawCard();
  tell({ act: "mark", at: place() });
}

function skip() {
  const first = known.queue[0];
  if (!first) return;
  next();
  perform("skip", { samples: [first.i] }, [first]);
}

// Back to the sample whose label is taken back; without one of this window's, the studio says which that was.
function undo() {
  const last = acts.at(-1);
  if (!last) { perform("undo", {}).then(answer => !acts.length && comeBack(answer?.undone?.[0])); return; }
  acts.pop();
  for (const i of last.samples) handled.delete(i);
  if (!cancel(last.act)) perform("undo", { of: last.act.key });
  comeBack(last.cards[0]);
}

function comeBack(card) {
  if (!card) return;
  known.queue = [card, ...known.queue.filter(sample => sample.i !== card.i)];
  drawCard();
  tell({ act: "mark", at: place() });
}

const OTHER = "none of these"; // a class like any other: what is far from the labelled ones, and is labelled so
const accept = () => known.queue[0]?.suggestion && label(known.queue[0].suggestion);

// Letters are always typed: a class may begin with any of them. What acts is no letter.
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const field = $("filter"), inField = event.target === field, empty = !field.value;
  if (!inField && (event.target.closest("input, textarea, select, dialog, details, [role=tab]") || $("label").hidden)) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const onButton = event.target.closest("button, a, summary");
  const chosen = empty && /^[1-9]$/.test(event.key) && digitsChoose() ? matches[event.key - 1] : null;
  const does = act => { event.preventDefault(); if (!event.repeat) act(); };
  if (inField && step && options.length) { event.preventDefault(); point((Math.max(pointed, step < 0 ? 0 : -1) + step + options.length) % options.length); }
  else if (event.key === "Enter" && !onButton) does(() => { if (inField && pointed >= 0) options[pointed].click(); else if (empty) accept(); $("card").focus(); });
  else if (inField && event.key === "Escape") { field.value = ""; drawClasses(); $("card").focus(); }
  else if (event.key === "ArrowRight" && empty) does(skip);
  else if (event.key === "ArrowLeft" && empty) does(undo);
  else if (chosen) does(() => label(chosen));
  else if (event.key === "0" && empty && digitsChoose()) does(() => label(OTHER));
  else if (inField) return;
  else if (event.key === "/") { event.preventDefault(); field.focus(); }
  else if ((event.key.length === 1 && event.key.trim()) || event.key === "Dead" || event.key === "Process") field.focus(); // it lands in the field
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
  $("detail").replaceChildren(title, showSample(sample, { large: true }), said, why, near, make("p", { class: "row" },
    make("button", { onclick: async () => { const name = await ask("Label this sample", "Class", sample.suggestion ?? "", known.classes); if (name) label(name, [i]); } }, "Label"),
    make("button", { onclick: async () => { const group = [i, ...sample.neighbours.map(other => other.i)];
      const name = await ask(`Label this and its ${sample.neighbours.length} neighbours`, "Class", sample.suggestion ?? "", known.classes); if (name) label(name, group); } }, "Label it and its neighbours"),
    sample.given ? make("button", { onclick: () => unlabel([i]).then(() => showDetail(i)) }, "Take the label back") : null,
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

let begun = false;
async function begin() {
  try {
    const state = await get("state");
    $("source").textContent = state.source;
    document.title = `${state.source} – Partwise studio`;
    $("wait").hidden = state.ready;
    if (!state.ready) { $("waitText").textContent = state.doing; return; }
    await Promise.all([loadPoints(), get("answer").then(take)]);
    if (!$("progress").hidden) drawProgress(dark.matches);
    if (!begun) $("card").focus();
    begun = true;
  } catch { /* the stream of news says when the studio is there again */ }
}

// The news; a stream that was refused, or ended with the studio, is asked for again.
const NEWS = {
  hello: () => { connected(true); begin(); },
  doing: ({ text, share }) => {
    $("wait").hidden = false;
    $("waitText").textContent = text;
    if (share == null) $("waitBar").removeAttribute("value"); else $("waitBar").value = share;
  },
  ready: begin,
  answer: async ({ version, by }) => { if (by !== win && version > known.version) take(await get("answer")); }, // this window's own act brings its answer itself
  progress: () => { if (!$("progress").hidden) drawProgress(dark.matches); },
  codes: async ({ text }) => { $("partsNews").textContent = text; await loadPoints(); take(await get("answer")); if (!$("parts").hidden) drawParts(); },
  trouble: ({ text }) => say(text),
};
function listen() {
  const news = new EventSource("/api/events");
  for (const [kind, act] of Object.entries(NEWS)) news.addEventListener(kind, event => act(JSON.parse(event.data)));
  news.addEventListener("error", () => {
    connected(false);
    if (!begun) begin();
    if (news.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

for (const name of VIEWS) { $(`tab-${name}`).addEventListener("click", () => show(name)); $(`tab-${name}`).addEventListener("keydown", tabKeys); }
$("skip").addEventListener("click", skip);
$("other").addEventListener("click", () => label(OTHER));
$("undo").addEventListener("click", undo);
$("filter").addEventListener("input", drawClasses);
document.addEventListener("keydown", keys);
dark.addEventListener("change", () => { drawMap(); drawLegend(); });
setUpList();
listen();
