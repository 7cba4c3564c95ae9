// The tab with the progress: accuracy by number of labels, accuracy per class, and labels that may be wrong.
import { $, get, make, own, percent } from "./elements.js";
import { label, showDetail } from "./studio.js";

const frame = $("curve");
let ready = false, last = null;
addEventListener("message", event => {
  if (event.origin === location.origin && event.source === frame.contentWindow && event.data.kind === "ready") { ready = true; drawCurve(); }
});

function drawCurve() {
  if (ready && last) frame.contentWindow.postMessage({ act: "curve", ...last }, location.origin);
}

export async function drawProgress(dark) {
  const found = await get("progress");
  $("advice").replaceChildren(...found.sentences.map(sentence => make("p", { dir: "auto" }, sentence)));
  last = { ...found.curve, dark };
  drawCurve();
  $("perClass").tBodies[0].replaceChildren(...found.classes.map(row => {
    const name = make("th", { scope: "row", dir: "auto" });
    name.textContent = row.name;
    return make("tr", {}, name, make("td", {}, String(row.labels)), make("td", {}, percent(row.recall)), make("td", {}, String(row.samples)));
  }));
  $("noDoubts").hidden = found.contradicted.length > 0;
  $("contradicted").replaceChildren(...found.contradicted.map(entry => {
    const set = name => label(name, [entry.i]).then(() => drawProgress(dark));
    const text = make("span", {}, own(entry.id), ": given ", own(entry.given), ", predicted ", own(entry.predicted), ` (wrong with probability ${percent(entry.wrong)}) `);
    return make("li", {}, text, make("button", { onclick: () => { $("tab-label").click(); showDetail(entry.i); } }, "Look"),
      make("button", { onclick: () => set(entry.given) }, "Keep ", own(entry.given)), make("button", { onclick: () => set(entry.predicted) }, "Change to ", own(entry.predicted)));
  }));
}
