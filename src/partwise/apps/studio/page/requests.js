// Requests that the server has not confirmed are kept in order, and sent again until it confirms them.
// Each request has a key. If its answer was lost and it arrives twice, the server carries it out only once.
import { $, reason, say, windowName } from "./elements.js";

const REFUSED = [400, 404, 409, 413]; // after these status codes, sending the request again would change nothing
const GONE = "The studio does not answer. If you started it again, open the address that it printed then.";
const UNKNOWN = "The studio was started again and does not recognise this window. Open the address that it printed, in another tab.";
const waiting = [], start = Date.now().toString(36); // keys must differ from those of the page before a reload
let sending = false, count = 0, wake = () => {}, trouble = "", lost = "";

export function add(name, words) {
  const request = { name, words, key: `${windowName}-${start}-${++count}` };
  request.done = new Promise(resolve => { request.resolve = resolve; });
  waiting.push(request);
  show();
  work();
  return request;
}

// Withdraw a request that was not sent. Return false if the request may have arrived.
export function cancel(request) {
  const at = waiting.indexOf(request);
  if (at < 1) return false;
  waiting.splice(at, 1);
  request.resolve(null);
  show();
  return true;
}

export const pending = () => waiting.length;

// This function is called when the stream of server events begins or ends.
export async function connected(yes) {
  lost = yes ? "" : GONE;
  if (yes) wake();
  show();
  if (yes) return;
  try { if ((await fetch("/api/state")).status === 403) lost = UNKNOWN; } catch { /* the server does not answer */ }
  show();
}

async function work() {
  if (sending) return;
  sending = true;
  for (let pause = 500; waiting.length; ) {
    const request = waiting[0], found = await deliver(request);
    trouble = found.trouble ?? "";
    if (trouble) {
      show();
      await new Promise(resolve => { wake = resolve; setTimeout(resolve, pause); });
      pause = Math.min(2 * pause, 5000);
      continue;
    }
    pause = 500;
    waiting.shift();
    if (found.refused) say(found.refused);
    request.resolve(found.answer ?? null);
    show();
  }
  sending = false;
}

async function deliver({ name, words, key }) {
  try {
    const answer = await fetch(`/api/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, signal: AbortSignal.timeout(60000),
      body: JSON.stringify({ window: windowName, key, ...words }),
    });
    if (answer.ok) return { answer: await answer.json() };
    if (answer.status === 403) return { trouble: UNKNOWN };
    const text = await reason(answer);
    return REFUSED.includes(answer.status) ? { refused: text || "The studio refused this." } : { trouble: text };
  } catch { return { trouble: GONE }; }
}

function show() {
  const n = waiting.length, text = trouble || lost;
  const kept = n === 1 ? "One change is kept" : `${n} changes are kept`;
  $("trouble").hidden = !text;
  $("trouble").textContent = text && (n ? `${text} ${kept} in this window and will be sent again; leave it open.` : text);
  $("saved").textContent = n ? `${n} not saved yet …` : count ? "Saved" : "";
  $("saved").className = n ? "unsaved" : "";
}

addEventListener("online", () => wake());
addEventListener("beforeunload", event => { if (waiting.length) event.preventDefault(); });
