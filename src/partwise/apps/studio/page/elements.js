// Functions that create elements, choose colours and read from the server. Texts of users are only set as textContent, never as HTML.
export const $ = id => document.getElementById(id);

// This window keeps its name when the page is reloaded, so that undo still works. A duplicated tab gets a new name.
export const windowName = await nameWindow();

async function nameWindow() {
  const kept = sessionStorage.getItem("window");
  for (let attempt = 0; kept && navigator.locks && attempt < 3; attempt++) {
    if (await isFree(kept)) return kept;
    await new Promise(resolve => setTimeout(resolve, 100)); // the page before the reload may still use the name
  }
  const name = Math.random().toString(36).slice(2, 12);
  if (navigator.locks) await isFree(name);
  sessionStorage.setItem("window", name);
  return name;
}

// Reserve a name as long as this page is open. Browsers have no locks for http on a network: there, no name is kept.
function isFree(name) {
  return new Promise(resolve => {
    navigator.locks.request(`window-${name}`, { ifAvailable: true }, lock => {
      resolve(Boolean(lock));
      return lock ? new Promise(() => {}) : null;
    });
  });
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

export function say(text) {
  $("say").textContent = text;
  clearTimeout(say.timer);
  if (text) say.timer = setTimeout(() => { $("say").textContent = ""; }, 10000);
}

export async function get(name, words = {}) {
  const query = new URLSearchParams(words).toString();
  return check(await fetch(`/api/${name}${query ? "?" + query : ""}`));
}

export async function post(name, words) {
  let answer;
  try {
    answer = await fetch(`/api/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ window: windowName, ...words }),
    });
  } catch (error) {
    say("The studio does not answer. Nothing was changed.");
    throw error;
  }
  return check(answer);
}

async function check(answer) {
  if (answer.ok) return answer.json();
  const text = await reason(answer);
  say(text);
  throw new Error(text);
}

export async function reason(answer) {
  try { return (await answer.json()).error ?? answer.statusText; } catch { return answer.statusText; }
}

export function unpack(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

const TEN = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#ff9da6", "#9d755d", "#7b6fd0"];
export const NONE = "#9aa0a6";

// The first ten classes have fixed colours. The hue of each further class differs by the golden angle.
export function colour(index) {
  if (index < 0) return NONE;
  if (index < TEN.length) return TEN[index];
  const hue = (index * 137.508) % 360, light = 0.45 + 0.2 * ((index >> 1) % 2);
  const part = shift => {
    const k = (shift + hue / 30) % 12, a = 0.6 * Math.min(light, 1 - light);
    return Math.round(255 * (light - a * Math.max(-1, Math.min(k - 3, 9 - k, 1)))).toString(16).padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}

export function dot(index) {
  const element = make("span", { class: "dot", "aria-hidden": "true" });
  element.style.background = colour(index);
  return element;
}

// A user's text inside a text of the page keeps its own writing direction.
export function own(text) {
  const element = make("bdi");
  element.textContent = text;
  return element;
}

export const percent = value => (value == null ? "–" : `${(100 * value).toFixed(value > 0.995 && value < 1 ? 1 : 0)}%`);

export function ask(title, label, value = "", names = []) {
  const dialog = $("ask");
  $("askTitle").textContent = title;
  $("askLabel").textContent = label;
  $("askInput").value = value;
  $("askNames").replaceChildren(...names.map(name => make("option", { value: name })));
  dialog.returnValue = "";
  dialog.showModal();
  $("askInput").focus();
  return new Promise(resolve => dialog.addEventListener(
    "close", () => resolve(dialog.returnValue === "ok" ? $("askInput").value.trim() : null), { once: true }));
}

const whole = sample => sample.picture.replace("/sample/", "/whole/");

function enlarge(sample) {
  const close = () => dialog.close();
  const dialog = make("dialog", { class: "whole", "aria-label": sample.id, onclick: close, onclose: () => {
    dialog.remove();
    if (document.activeElement !== $("filter")) $("card").focus(); // typing closes the dialog and goes to the class field
  } }, picture(whole(sample), `Picture of ${sample.id}`), make("button", { onclick: close }, "Close"));
  document.body.append(dialog);
  dialog.showModal();
}

// Small images are shown with square pixels; photos are scaled smoothly.
function picture(src, alt) {
  return make("img", { src, alt, onload: event => event.target.classList.toggle("pixels", event.target.naturalWidth <= 64) });
}

export function preload(sample) {
  if (sample?.picture) new Image().src = whole(sample);
}

export function showSample(sample, { large = false } = {}) {
  if (sample.picture) {
    const image = picture(large ? whole(sample) : sample.picture, `Picture of ${sample.id}`);
    return large ? make("button", { class: "zoom", title: "Enlarge", onclick: () => enlarge(sample) }, image) : image;
  }
  if (sample.text != null) {
    const text = make("p", { class: "text", dir: "auto", tabindex: large ? "0" : null });
    text.textContent = sample.text;
    if (!large || !sample.more) return text;
    const more = make("button", { class: "more", onclick: async () => { text.textContent = (await get("text", { i: sample.i })).text; more.remove(); text.focus(); } }, "More");
    return make("div", {}, text, more);
  }
  const bars = sample.values?.some(([, , share]) => share);
  return make("div", { class: "values", tabindex: large ? "0" : null }, make("table", {}, rowsOf(sample)),
    bars ? make("p", { class: "quiet" }, "Bars: columns that speak for (green) or against (red) ", own(sample.about), ".") : null);
}

function rowsOf(sample) {
  const body = make("tbody");
  for (const [name, value, share] of sample.values ?? []) {
    const row = make("tr", {}, make("th", { scope: "row", dir: "auto" }), make("td", { dir: "auto" }), make("td", {}, share ? bar(share, sample.about) : null));
    row.children[0].textContent = name;
    row.children[1].textContent = value;
    body.append(row);
  }
  return body;
}

// Show how much a column of a table contributes to the prediction.
function bar(share, label) {
  const text = `speaks ${share > 0 ? "for" : "against"} ${label}`;
  const element = make("span", { class: share > 0 ? "bar for" : "bar against", role: "img", "aria-label": text, title: text });
  element.style.width = `${(Math.abs(share) * 4).toFixed(2)}rem`;
  return element;
}

// Choose some values of a row of a table: those that identify the row, and those that contribute most to the prediction.
export const shortRow = sample => sample.values.slice(0, 2).concat(
  sample.values.slice(2).sort((a, b) => Math.abs(b[2]) - Math.abs(a[2])).slice(0, 3)).map(([name, value]) => `${name}: ${value}`).join(", ");
