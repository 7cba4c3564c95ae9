// Small helpers: requests, elements, colours. Text of users is only ever textContent.
export const $ = id => document.getElementById(id);
export const win = Math.random().toString(36).slice(2, 12);

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
  if (text) say.timer = setTimeout(() => { $("say").textContent = ""; }, 8000);
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
      body: JSON.stringify({ window: win, ...words }),
    });
  } catch (error) {
    say("The studio does not answer: this was not done.");
    throw error;
  }
  return check(answer);
}

async function check(answer) {
  if (answer.ok) return answer.json();
  let text = answer.statusText;
  try { text = (await answer.json()).error ?? text; } catch { /* no JSON: the status says it */ }
  say(text);
  throw new Error(text);
}

export function unpack(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

const TEN = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#ff9da6", "#9d755d", "#7b6fd0"];
export const NONE = "#9aa0a6";

// The first ten classes have colours of their own; later ones go round the circle by the golden angle.
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

// A user's words among ours: they keep their own direction.
export function own(text) {
  const element = make("bdi");
  element.textContent = text;
  return element;
}

export const percent = value => (value == null ? "–" : `${(100 * value).toFixed(value > 0.995 && value < 1 ? 1 : 0)} %`);

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

function zoom(sample) {
  const close = () => dialog.close();
  const dialog = make("dialog", { class: "whole", "aria-label": sample.id, onclick: close, onclose: () => { dialog.remove(); $("card").focus(); } },
    make("img", { src: sample.picture.replace("/sample/", "/whole/"), alt: `Picture of ${sample.id}` }), make("button", { onclick: close }, "Close"));
  document.body.append(dialog);
  dialog.showModal();
}

export function showSample(sample, { large = false } = {}) {
  if (sample.picture) {
    const picture = make("img", { src: sample.picture, alt: `Picture of ${sample.id}` });
    return large ? make("button", { class: "zoom", title: "Enlarge", onclick: () => zoom(sample) }, picture) : picture;
  }
  if (sample.text != null) {
    const text = make("p", { class: "text", dir: "auto", tabindex: large ? "0" : null });
    text.textContent = sample.text;
    if (!large || !sample.more) return text;
    const more = make("button", { class: "more", onclick: async () => { text.textContent = (await get("text", { i: sample.i })).text; more.remove(); text.focus(); } }, "More");
    return make("div", {}, text, more);
  }
  const body = make("tbody");
  for (const [name, value] of sample.values ?? []) {
    const row = make("tr", {}, make("th", { scope: "row", dir: "auto" }), make("td"));
    row.children[0].textContent = name;
    row.children[1].textContent = value;
    body.append(row);
  }
  return make("div", { class: "values", tabindex: large ? "0" : null }, make("table", {}, body));
}
