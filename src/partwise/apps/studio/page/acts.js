// What a person did and the studio has not acknowledged: kept in order, sent again until it is.
// Each act has a key, by which the studio knows one that comes twice since its answer was lost.
import { $, say, win } from "./parts-of-page.js";

const REFUSED = [400, 404, 409, 413]; // to send these again would change nothing
const waiting = [];
let sending = false, count = 0, awake = () => {}, trouble = "", lost = false;

export function add(name, words) {
  const act = { name, words, key: `${win}-${++count}` };
  act.done = new Promise(resolve => { act.resolve = resolve; });
  waiting.push(act);
  show();
  work();
  return act;
}

// Take back an act that was never sent; false where it may have arrived.
export function cancel(act) {
  const at = waiting.indexOf(act);
  if (at < 1) return false;
  waiting.splice(at, 1);
  act.resolve(null);
  show();
  return true;
}

export const pending = () => waiting.length;

// The line to the studio is there, or not: also told by the stream of news.
export function connected(yes) {
  lost = !yes;
  if (yes) awake();
  show();
}

async function work() {
  if (sending) return;
  sending = true;
  for (let pause = 500; waiting.length; ) {
    const act = waiting[0], found = await deliver(act);
    trouble = found.trouble ?? "";
    if (trouble) {
      show();
      await new Promise(resolve => { awake = resolve; setTimeout(resolve, pause); });
      pause = Math.min(2 * pause, 5000);
      continue;
    }
    pause = 500;
    waiting.shift();
    if (found.refused) say(found.refused);
    act.resolve(found.answer ?? null);
    show();
  }
  sending = false;
}

async function deliver({ name, words, key }) {
  try {
    const answer = await fetch(`/api/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, signal: AbortSignal.timeout(60000),
      body: JSON.stringify({ window: win, key, ...words }),
    });
    if (answer.ok) return { answer: await answer.json() };
    let text = answer.statusText;
    try { text = (await answer.json()).error ?? text; } catch { /* no JSON: the status says it */ }
    if (REFUSED.includes(answer.status)) return { refused: text || "This was refused." };
    return { trouble: answer.status === 403 ? "The studio was started anew and does not know this window: open the address that it printed, in another tab." : text };
  } catch { return { trouble: "The studio does not answer." }; }
}

function show() {
  const n = waiting.length, text = trouble || (lost ? "The studio does not answer." : "");
  const wait = n === 1 ? "One act waits" : `${n} acts wait`;
  $("trouble").hidden = !text;
  $("trouble").textContent = text && (n ? `${text} ${wait} in this window and will be sent again; leave it open.` : text);
  $("saved").textContent = n ? `${n} not saved yet …` : count ? "Saved" : "";
  $("saved").className = n ? "unsaved" : "";
}

addEventListener("online", () => awake());
addEventListener("beforeunload", event => { if (waiting.length) event.preventDefault(); });
